"""Embeddings in files: write them, search them, find duplicates."""

from nearfar.search.duplicates import find_duplicates
from nearfar.search.embed import embed
from nearfar.search.files import Embeddings
from nearfar.search.index import lookup
from nearfar.search.mine import Mining, mine_negatives
from nearfar.search.search import InMemory, neighbors, search

__all__ = [
    "Embeddings",
    "InMemory",
    "Mining",
    "embed",
    "find_duplicates",
    "lookup",
    "mine_negatives",
    "neighbors",
    "search",
]
