"""The rows nearest to a query by cosine: exact, or by a faiss index."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from nearfar.losses.arguments import l2_normalize
from nearfar.losses.engine.top_k import top_k_similarity

QUERIES = 4096  # rows searched at a time by `neighbors`


class Vectors(Protocol):
    """N rows of F numbers, a piece at a time."""

    dim: int

    def __len__(self) -> int: ...
    def pieces(self) -> Iterator[tuple[int, Tensor]]: ...


class InMemory:
    """(N, F) rows in memory.

    >>> len(InMemory(torch.eye(3)))
    3
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.dim = rows, rows.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        yield 0, self.rows


class Hits(NamedTuple):
    """(Q, k) cosines, highest first, and (Q, k) row numbers; -1 where an index found fewer."""

    similarities: Tensor
    rows: Tensor


Lookup = Callable[[Tensor, int], Hits]  # (Q, F) unit rows and k


def exact(vectors: Vectors) -> Lookup:
    """Compare every row, in tiles and a piece of the file at a time: memory holds one piece and the hits."""

    def find(query: Tensor, k: int) -> Hits:
        best = Hits(torch.empty(len(query), 0), torch.empty(len(query), 0, dtype=torch.long))
        for start, x in vectors.pieces():
            values, rows = top_k_similarity(query, l2_normalize(x), k=min(k, len(x)))
            merged = Hits(torch.cat([best.similarities, values], 1), torch.cat([best.rows, rows + start], 1))
            order = merged.similarities.topk(min(k, merged.rows.shape[1])).indices
            best = Hits(merged.similarities.gather(1, order), merged.rows.gather(1, order))
        return best

    return find


@torch.no_grad()
def search(query: Tensor, vectors: Vectors, *, k: int, find: Lookup | None = None) -> Hits:
    """The k rows nearest to each query.

    Args:
        query: (Q, F); normalised here.
        vectors: an `Embeddings` file, or `InMemory`.
        k: results; fewer where there are fewer rows.
        find: from `nearfar.search.index.lookup`; None: exact.

    >>> search(torch.tensor([[2.0, 1.0]]), InMemory(torch.eye(2)), k=2).rows.tolist()
    [[0, 1]]
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    if query.ndim != 2 or query.shape[1] != vectors.dim:
        raise ValueError(
            f"the query has shape {tuple(query.shape)}, expected (Q, {vectors.dim}); was it made by another encoder?"
        )
    return (find or exact(vectors))(l2_normalize(query.float()), min(k, len(vectors)))


@torch.no_grad()
def neighbors(
    vectors: Vectors, *, k: int, find: Lookup | None = None, advance: Callable[[int], None] = lambda _: None
) -> Hits:
    """The k rows nearest to each row, without itself; (N, k).

    Args:
        vectors: N rows.
        k: at most N - 1.
        find: as in `search`.
        advance: called with numbers of finished rows.
    """
    if not 1 <= k < len(vectors):
        raise ValueError(f"k is {k}, expected from 1 to {len(vectors) - 1}, the rows minus one")
    find = find or exact(vectors)
    found = []
    for start, x in vectors.pieces():
        for first in range(0, len(x), QUERIES):
            query = l2_normalize(x[first : first + QUERIES])
            own = start + first + torch.arange(len(query))
            found.append(_without(find(query, k + 1), own))
            advance(len(query))
    return Hits(torch.cat([hits.similarities for hits in found]), torch.cat([hits.rows for hits in found]))


def _without(hits: Hits, own: Tensor) -> Hits:
    """(Q, k + 1) hits to (Q, k): drop the query itself, or the last hit where equal rows displaced it."""
    drop = hits.rows == own[:, None]  # (Q, k + 1)
    drop[:, -1] |= ~drop.any(1)
    shape = len(own), hits.rows.shape[1] - 1
    return Hits(hits.similarities[~drop].view(shape), hits.rows[~drop].view(shape))
