"""The order of rows and columns by id, and which entries have equal ids.

Rows and columns are sorted by id. Equal ids are then adjacent, and only the few tiles where the ids of rows and columns
overlap have entries to exclude.
"""

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

Blocks = tuple[slice, ...]
Excluded = Tensor | tuple[Tensor, Tensor]  # a mask of the tile, or the row and column numbers of a few entries


def equal_blocks(length: int, most: int) -> tuple[slice, ...]:
    """Equal blocks of at most `most`, without a short one at the end."""
    count = -(-length // most)
    edges = [length * i // count for i in range(count + 1)]
    return tuple(slice(a, b) for a, b in pairwise(edges))


class Layout(NamedTuple):
    """The order of rows and columns by id, and which entries have equal ids."""

    row_order: Tensor | None  # (rows,); None: already sorted
    column_order: Tensor | None
    row_spans: list[tuple[int, int]]  # lowest and highest id of each block
    column_spans: list[tuple[int, int]]
    row_ids: Tensor  # (rows,), sorted
    column_ids: Tensor
    pairs: tuple[Tensor, Tensor, list[int]] | None  # row and column of equal ids; first of each row block

    def excluded(self, i: int, rows: slice, columns: slice) -> Excluded:
        """Entries of equal ids in the tile of the i-th row block and these columns."""
        if self.pairs is None:
            return self.row_ids[rows, None] == self.column_ids[None, columns]
        row, column, edges = self.pairs
        if len(self.row_spans) == len(self.column_spans) == 1:
            return row, column
        row, column = row[edges[i] : edges[i + 1]] - rows.start, column[edges[i] : edges[i + 1]] - columns.start
        if len(self.column_spans) > 1:
            inside = (column >= 0) & (column < columns.stop - columns.start)
            row, column = row[inside], column[inside]
        return row, column


def make_layout(row_ids: Tensor, column_ids: Tensor, height: int, width: int) -> Layout:
    rows, columns = equal_blocks(len(row_ids), height), equal_blocks(len(column_ids), width)
    ids, order = _sorted(row_ids.long())
    others, other_order = (ids, order) if column_ids is row_ids else _sorted(column_ids.long())
    pairs = _equal_pairs(ids, others, [block.stop for block in rows])
    if pairs is not None and len(rows) == len(columns) == 1:  # a few entries of a single tile need no sorting
        row, column, edges = pairs
        everywhere = [(0, 1)]  # overlapping spans of more than one id, so that the pairs are used
        row = row if order is None else order[row]
        column = column if other_order is None else other_order[column]
        return Layout(None, None, everywhere, everywhere, ids, others, (row, column, edges))
    return Layout(order, other_order, _spans(ids, rows), _spans(others, columns), ids, others, pairs)


def unread_layout(row_ids: Tensor, column_ids: Tensor, rows: Blocks, columns: Blocks) -> Layout:
    """Every tile may have equal ids: to know which would be to wait for an accelerator."""
    everywhere = (0, 1)
    return Layout(None, None, [everywhere] * len(rows), [everywhere] * len(columns), row_ids, column_ids, None)


@lru_cache(maxsize=4)
def cached_layout(row_ids: Tensor, column_ids: Tensor, height: int, width: int) -> Layout:
    """Of default ids, the same tensor at every step; found on the CPU, where these are made."""
    if row_ids.device.type == "cpu":
        return make_layout(row_ids, column_ids, height, width)
    samples, views = row_ids.nearfar_default  # type: ignore[attr-defined]
    ids = torch.arange(samples).repeat(views)
    found = make_layout(ids, ids, height, width)
    moved = [None if x is None else x.to(row_ids.device) for x in (found.row_order, found.row_ids)]
    order, ordered = moved[0], moved[1]
    assert ordered is not None
    if found.row_order is None and len(found.row_spans) == 1:
        order, ordered = None, row_ids
    return found._replace(row_order=order, column_order=order, row_ids=ordered, column_ids=ordered, pairs=None)


def default_ids(samples: int, views: int, like: Tensor) -> Tensor:
    """(views · samples,), a number for each sample: the ids of a loss that is called without any.

    Cached, together with their order. A caller's own ids are never cached: they may be changed in place.
    """
    if torch.compiler.is_compiling():
        return torch.arange(samples, device=like.device).repeat(views)
    make = _default_ids if type(like) in (Tensor, torch.nn.Parameter) else _default_ids.__wrapped__
    return make(samples, views, like.device)


@lru_cache(maxsize=8)
def _default_ids(samples: int, views: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        ids = torch.arange(samples, device=device).repeat(views)
    ids.nearfar_default = (samples, views)  # type: ignore[attr-defined]
    return ids


def is_default(ids: Tensor) -> bool:
    """Whether these are cached ids, which nobody changes."""
    return hasattr(ids, "nearfar_default") and type(ids) is Tensor


def _equal_pairs(row_ids: Tensor, column_ids: Tensor, block_ends: list[int]) -> tuple[Tensor, Tensor, list[int]] | None:
    """Row and column of every pair of equal sorted ids, and the first of each row block; None if there are many.

    Writing a few entries is faster than masking the tile, and their list is linear in memory.
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


def _spans(ids: Tensor, blocks: tuple[slice, ...]) -> list[tuple[int, int]]:
    """Lowest and highest id of each block of sorted ids."""
    edges = torch.tensor([[b.start, b.stop - 1] for b in blocks], device=ids.device)
    return [(low, high) for low, high in ids[edges].tolist()]


def _sorted(ids: Tensor) -> tuple[Tensor, Tensor | None]:
    """Sorted ids and their order; None if they are sorted already, which saves copies of the rows."""
    if bool((ids[1:] >= ids[:-1]).all()):
        return ids, None
    found = torch.sort(ids)
    return found.values, found.indices
