"""Embeddings in files, and what one does with them: write, search, find duplicates."""

from nearfar.search.duplicates import Duplicates, find_duplicates
from nearfar.search.embed import Embedded, embed
from nearfar.search.files import Embeddings
from nearfar.search.index import lookup
from nearfar.search.search import Hits, InMemory, neighbours, search

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
