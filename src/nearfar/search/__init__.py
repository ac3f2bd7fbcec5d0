"""Embeddings in files: write them, search them, find duplicates.

`nearfar.search(encoder, file, query)` finds the samples most similar to a query: `nearfar.search.search_function`.

- **Chunks that survive.** `embed` writes finished chunks, each whole or not at all, to `OUT.parts/`, and puts them
  together at the end, one in memory at a time. The folder states which encoder, data, labels, type and chunk size it
  is of; parts of anything else are thrown away, which is said. A second start with the same arguments goes on after
  the last finished chunk.
- **Three things at once.** A thread reads and prepares the next batches, the forward pass runs, a thread writes.
  Files are decoded as they are needed and stored nowhere: a pack of ten million images would be half a terabyte.
- **Search is `top_k_similarity` over pieces of the file.** Memory is that of a piece. faiss indices are kept beside
  the file, and used only while size and time of the file, and the digest of the index, are those that were noted.
- **The threshold of near-duplicates comes from the data.** Where rows are spread evenly in $m$ dimensions, the number
  of neighbours within $r$ grows as $r^m$; from each row's 16th neighbour follows how many pairs within $r$ are
  chance. The threshold is the largest $r$ at which chance explains at most 1 % of the pairs. Data without duplicates
  has none. Blind spots: an encoder that does not hold copies together, and duplicates in groups of more than about
  eight copies that make up most of the data; `--threshold` is there for those.
- **Names are not trusted.** A picture is looked up below the folder of the data; a name that leads out is refused.
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
