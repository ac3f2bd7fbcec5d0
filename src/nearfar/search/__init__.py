"""Embeddings in files: write them, search them, find duplicates.

`nearfar.search(encoder, file, query)` finds the samples most similar to a query: `nearfar.search.search_function`.
"""

from nearfar.lazy import make_callable
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

make_callable(__name__)
