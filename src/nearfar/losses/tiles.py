"""How a similarity matrix is walked tile by tile, so that it is never held.

Rows and columns are put in the order of their ids. Equal ids then lie side by side, and only the few tiles
where the ids of rows and columns overlap have anything to exclude: itself, its twin, its duplicates or its
class cost next to nothing.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

_TILE: ContextVar[int | None] = ContextVar("nearfar_tile", default=None)
_SMALLEST, _LARGEST = 256, 4096  # sides of the automatic tile
_STRIP = 1 << 16  # entries of a strip
_NO_SPAN = [(1, 0)]  # of ids: overlaps with none


@contextmanager
def tile_size(side: int) -> Iterator[None]:
    """Within this context every loss works in tiles of at most `side` × `side`; the result is the same.

    >>> with tile_size(512):
    ...     pass
    """
    if not isinstance(side, int) or isinstance(side, bool) or side < 1:
        raise ValueError(f"tile_size: side is {side!r}, expected a whole number of at least 1")
    token = _TILE.set(side)
    try:
        yield
    finally:
        _TILE.reset(token)


def _cache_bytes() -> int:
    """The second-level cache of one core, where a tile is still hot when it is read again."""
    try:
        found = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, OSError, ValueError):
        found = 0
    return found if found > 0 else 1 << 20


def _tile_shape(rows: int, columns: int, like: Tensor) -> tuple[int, int]:
    """Height and width of a tile: square, unless the matrix is too flat to fill a square."""
    if (side := _TILE.get()) is not None:
        return min(side, rows), min(side, columns)
    if like.device.type == "cpu":
        entries = _cache_bytes() * torch.get_num_threads() // like.element_size()
    else:
        entries = _LARGEST**2  # few launches, each large enough to fill the device
    side = min(max(int(entries**0.5), _SMALLEST), _LARGEST)
    height, width = min(rows, side), min(columns, side)
    return min(rows, max(height, side * side // width)), min(columns, max(width, side * side // height))


def _blocks(length: int, most: int) -> list[slice]:
    """Cut `length` into equal blocks of at most `most`, so that no sliver is left at the end."""
    count = -(-length // most)
    edges = [length * i // count for i in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


Excluded = Tensor | tuple[Tensor, Tensor]  # a mask of the tile, or the row and column numbers of a few entries


class Tile(NamedTuple):
    """One rectangle of the matrix, in id order."""

    rows: slice
    columns: slice
    excluded: Excluded | None  # where the ids are equal: an index into the tile; None where they nowhere are
    mirrored: bool  # stands for its mirror image across the diagonal, too


class Grid:
    """The tiles of a rows × columns matrix in which equal ids exclude each other.

    Args:
        rows, columns: the shape of the matrix; `columns=None` is the symmetric matrix of the rows with
            themselves, of which only the tiles on and above the diagonal are walked.
        row_ids, column_ids: (rows,), (columns,) integers, or None where nothing is excluded; the same tensor
            if the matrix is symmetric.
        like: a tensor of the type and device of the computation.
    """

    def __init__(
        self, rows: int, columns: int | None, row_ids: Tensor | None, column_ids: Tensor | None, *, like: Tensor
    ) -> None:
        self.symmetric = columns is None
        columns = rows if columns is None else columns
        height, width = _tile_shape(rows, columns, like)
        if self.symmetric:
            height = width = min(height, width)
        self._row_blocks, self._column_blocks = _blocks(rows, height), _blocks(columns, width)
        self._row_ids: Tensor | None = None
        self._column_ids: Tensor | None = None
        self._row_order: Tensor | None = None
        self._column_order: Tensor | None = None
        self._pairs: tuple[Tensor, Tensor, list[int]] | None = None
        self._row_spans = self._column_spans = _NO_SPAN * max(len(self._row_blocks), len(self._column_blocks))
        if row_ids is not None and column_ids is not None:
            self._exclude(row_ids, column_ids)

    def _exclude(self, row_ids: Tensor, column_ids: Tensor) -> None:
        """Bring equal ids side by side, and list the pairs of them if they are few."""
        ids, order = torch.sort(row_ids.long())
        of_columns, column_order = (ids, order) if column_ids is row_ids else torch.sort(column_ids.long())
        pairs = _equal_pairs(ids, of_columns, [b.stop for b in self._row_blocks])
        if self.single and pairs is not None:  # a few known entries of a single tile need no order
            row, column, edges = pairs
            self._pairs = order[row], column_order[column], edges
            self._row_spans = self._column_spans = [(0, 1)]
        else:
            self._pairs = pairs
            self._row_ids, self._row_order, self._column_ids, self._column_order = ids, order, of_columns, column_order
            self._row_spans = _id_spans(ids, self._row_blocks)
            self._column_spans = _id_spans(of_columns, self._column_blocks)

    def sort_rows(self, x: Tensor) -> Tensor:
        """Rows of `x` from the caller's order into id order."""
        return x if self._row_order is None else x.index_select(0, self._row_order)

    def sort_columns(self, x: Tensor) -> Tensor:
        return x if self._column_order is None else x.index_select(0, self._column_order)

    def restore_rows(self, x: Tensor) -> Tensor:
        """Rows of `x` from id order back into the caller's order."""
        return x if self._row_order is None else torch.empty_like(x).index_copy_(0, self._row_order, x)

    def restore_columns(self, x: Tensor) -> Tensor:
        return x if self._column_order is None else torch.empty_like(x).index_copy_(0, self._column_order, x)

    def original_columns(self, index: Tensor) -> Tensor:
        """Column numbers in id order as the caller's column numbers."""
        return index if self._column_order is None else self._column_order[index]

    @property
    def single(self) -> bool:
        """Whether one tile is the whole matrix."""
        return len(self._row_blocks) == len(self._column_blocks) == 1

    def tiles(self) -> Iterator[Tile]:
        """Every tile with something in it, row by row."""
        for i, rows in enumerate(self._row_blocks):
            for j, columns in enumerate(self._column_blocks):
                if self.symmetric and j < i:
                    continue
                (row_low, row_high), (low, high) = self._row_spans[i], self._column_spans[j]
                excluded = None
                if row_low <= high and low <= row_high:
                    if row_low == row_high == low == high:
                        continue  # one id throughout: nothing in it counts
                    excluded = self._excluded(i, j)
                yield Tile(rows, columns, excluded, self.symmetric and j > i)

    def _excluded(self, i: int, j: int) -> Excluded:
        """Where the ids are equal in the tile of row block i and column block j."""
        rows, columns = self._row_blocks[i], self._column_blocks[j]
        if self._pairs is None:
            assert self._row_ids is not None and self._column_ids is not None
            return self._row_ids[rows, None] == self._column_ids[None, columns]
        row, column, edges = self._pairs
        row, column = row[edges[i] : edges[i + 1]], column[edges[i] : edges[i + 1]]
        if len(self._column_blocks) > 1:
            inside = (column >= columns.start) & (column < columns.stop)
            row, column = row[inside], column[inside]
        return row - rows.start, column - columns.start

    def similarities(self, query: Tensor, keys: Tensor) -> Iterator[tuple[Tile, Tensor]]:
        """Each tile with its inner products, -inf where excluded. The tensor is reused: read it before the next."""
        tallest, widest = (max(b.stop - b.start for b in x) for x in (self._row_blocks, self._column_blocks))
        room = query.new_empty(tallest * widest)
        for tile in self.tiles():
            q, k = query[tile.rows], keys[tile.columns]
            s = torch.mm(q, k.T, out=room[: len(q) * len(k)].view(len(q), len(k)))
            if tile.excluded is not None:
                s[tile.excluded] = -torch.inf
            yield tile, s

    def weighted_sums(
        self, query: Tensor, keys: Tensor, weights: Iterable[tuple[Tile, Tensor]], *, for_keys: bool
    ) -> tuple[Tensor, Tensor | None]:
        """`W @ keys` and, if asked, `W.T @ query`, for a matrix W that is given tile by tile.

        On a symmetric grid a mirrored tile counts with its mirror image, in the first result.
        """
        of_query = torch.zeros_like(query)
        of_keys = torch.zeros_like(keys) if for_keys and not self.symmetric else None
        for tile, w in weights:
            of_query[tile.rows].addmm_(w, keys[tile.columns])
            below = of_query if tile.mirrored else of_keys
            if below is not None:
                below[tile.columns].addmm_(w.T, query[tile.rows])
        return of_query, of_keys


def strips(tile: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The tile in strips of a few rows, so that what is computed beside it stays small and in cache."""
    height = len(tile) if tile.device.type != "cpu" else max(1, _STRIP // tile.shape[1])
    for start in range(0, len(tile), height):
        strip = slice(start, start + height)
        yield strip, tile[strip]


def _equal_pairs(row_ids: Tensor, column_ids: Tensor, block_ends: list[int]) -> tuple[Tensor, Tensor, list[int]] | None:
    """Row and column of every pair of equal sorted ids, and where each row block's begin; None if they are many.

    Writing to a few entries is quicker than masking the tile, and their list stays linear in memory.
    """
    first = torch.searchsorted(column_ids, row_ids)
    count = torch.searchsorted(column_ids, row_ids, right=True) - first
    before = torch.cat([count.new_zeros(1), count.cumsum(0)])  # (rows + 1,)
    edges = before[[0, *block_ends]].tolist()
    total = edges[-1]
    if total > 4 * (len(row_ids) + len(column_ids)):
        return None
    row = torch.arange(len(row_ids), device=row_ids.device).repeat_interleave(count, output_size=total)
    column = first[row] + torch.arange(total, device=row_ids.device) - before[row]
    return row, column, edges


def _id_spans(ids: Tensor, blocks: list[slice]) -> list[tuple[int, int]]:
    """Lowest and highest id of each block of sorted ids."""
    edges = torch.tensor([[b.start, b.stop - 1] for b in blocks], device=ids.device)
    return [(low, high) for low, high in ids[edges].tolist()]
