"""Embeddings in files, and what one does with them: write, search, find duplicates."""

from nearfar.embeddings.duplicates import Duplicates, find_duplicates
from nearfar.embeddings.files import Embeddings
from nearfar.embeddings.index import lookup
from nearfar.embeddings.search import Hits, InMemory, neighbours, search
from nearfar.embeddings.write import Embedded, embed

__all__ = [
    "Duplicates",
    "Embedded",
    "Embeddings",
    "Hits",
    "InMemory",
    "embed",
    "find_duplicates",
    "lookup",
    "neighbours",
    "search",
]
