"""A similarity matrix computed tile by tile, so that it is never held whole.

Rows and columns are sorted by id. Equal ids are then adjacent, and only the few tiles where the ids of rows and columns
overlap have entries to exclude. So excluding itself, other views, duplicates or a class costs almost nothing.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.losses.engine.guide import Guide
from nearfar.losses.engine.layout import (
    Excluded,
    Layout,
    cached_layout,
    equal_blocks,
    is_default,
    make_layout,
    unread_layout,
)

_TILE: ContextVar[int | None] = ContextVar("nearfar_tile", default=None)
_SMALLEST, _LARGEST = 256, 4096  # sides of the automatic tile
_STRIP = 1 << 16  # entries of a strip
_FLAT = 128, 1 << 16  # height and width of a flat tile on the CPU: 32 MiB of float32


@contextmanager
def tile_size(side: int) -> Iterator[None]:
    """Within this context every loss uses tiles of at most `side` × `side`; the result is the same.

    >>> with tile_size(512):
    ...     pass
    """
    if not isinstance(side, int) or isinstance(side, bool) or side < 1:
        raise ValueError(f"tile_size: side is {side!r}, expected an integer of at least 1")
    token = _TILE.set(side)
    try:
        yield
    finally:
        _TILE.reset(token)


def current_tile() -> int | None:
    """The side set by `tile_size`."""
    return _TILE.get()


class Tile(NamedTuple):
    """One rectangle of the matrix, in id order."""

    rows: slice
    columns: slice
    excluded: Excluded | None  # index of the entries with equal ids; None if there are none
    mirrored: bool  # also stands for its mirror image across the diagonal


class Grid:
    """The tiles of a rows × columns matrix in which equal ids exclude each other.

    Args:
        rows, columns: the shape of the matrix; `columns=None` is the symmetric matrix of the rows with themselves, of
            which only the tiles on and above the diagonal are computed.
        row_ids, column_ids: (rows,), (columns,) integers, or None if nothing is excluded; the same tensor if the
            matrix is symmetric.
        like: a tensor of the type and device of the computation.
        flat: few rows and many columns per tile, for a top-k, which is faster on long rows.
        guide: leaves out further pairs; not for a symmetric matrix, since a pair's two directions differ.
    """

    def __init__(
        self,
        rows: int,
        columns: int | None,
        row_ids: Tensor | None,
        column_ids: Tensor | None,
        *,
        like: Tensor,
        flat: bool = False,
        guide: Guide | None = None,
    ) -> None:
        assert guide is None or columns is not None
        self.symmetric = columns is None
        columns = rows if columns is None else columns
        height, width = _tile_shape(rows, columns, like, flat)
        if self.symmetric:
            height = width = min(height, width)
        self._rows, self._columns = equal_blocks(rows, height), equal_blocks(columns, width)
        self.single = len(self._rows) == len(self._columns) == 1
        self._layout: Layout | None = None
        if row_ids is not None and column_ids is not None:
            if row_ids is column_ids and is_default(row_ids):
                self._layout = cached_layout(row_ids, column_ids, height, width)
            elif row_ids.device.type == "cpu":
                self._layout = make_layout(row_ids, column_ids, height, width)
            else:
                self._layout = unread_layout(row_ids, column_ids, self._rows, self._columns)
        self._guide = guide and Guide(
            self.sort_rows(guide.query), self.sort_columns(guide.keys), self.sort_rows(guide.limit)
        )

    def sort_rows(self, x: Tensor) -> Tensor:
        """Rows of `x` from the caller's order into id order."""
        return _permuted(x, self._layout and self._layout.row_order)

    def sort_columns(self, x: Tensor) -> Tensor:
        return _permuted(x, self._layout and self._layout.column_order)

    def restore_rows(self, x: Tensor) -> Tensor:
        """Rows of `x` from id order back into the caller's order."""
        return _restored(x, self._layout and self._layout.row_order)

    def restore_columns(self, x: Tensor) -> Tensor:
        return _restored(x, self._layout and self._layout.column_order)

    def original_columns(self, index: Tensor) -> Tensor:
        """Column numbers in id order as the caller's column numbers."""
        order = self._layout and self._layout.column_order
        return index if order is None else order[index]

    def tiles(self) -> Iterator[Tile]:
        """Every tile that has an entry that counts, row by row."""
        for i, rows in enumerate(self._rows):
            for j, columns in enumerate(self._columns):
                if self.symmetric and j < i:
                    continue
                excluded = None
                if self._layout is not None:
                    (low, high), (least, most) = self._layout.row_spans[i], self._layout.column_spans[j]
                    if low == high == least == most:
                        continue  # a single id: every entry is excluded
                    if low <= most and least <= high:
                        excluded = self._layout.excluded(i, rows, columns)
                yield Tile(rows, columns, excluded, self.symmetric and j > i)

    def similarities(self, query: Tensor, keys: Tensor, scale: Tensor | float = 1.0) -> Iterator[tuple[Tile, Tensor]]:
        """Each tile of scale · query @ keys.T, -inf where excluded. The tensor is reused by the next tile."""
        tallest, widest = (max(b.stop - b.start for b in blocks) for blocks in (self._rows, self._columns))
        buffer, factor = query.new_empty(tallest * widest), as_number(scale)
        if factor is None:
            query, factor = query * scale, 1.0  # on the device: its value is not read
        for tile in self.tiles():
            q, k = query[tile.rows], keys[tile.columns]
            s = buffer[: len(q) * len(k)].view(len(q), len(k)).addmm_(q, k.T, beta=0, alpha=factor)
            if isinstance(tile.excluded, Tensor):
                s.masked_fill_(tile.excluded, -torch.inf)
            elif tile.excluded is not None:
                s[tile.excluded] = -torch.inf
            if self._guide is not None:
                s.masked_fill_(self._guide.excluded(tile.rows, tile.columns), -torch.inf)
            yield tile, s

    def weighted_sums(
        self,
        query: Tensor,
        keys: Tensor,
        weights: Iterable[tuple[Tile, Tensor]],
        *,
        for_keys: bool,
        diagonal: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """`W @ keys` and, if asked, `W.T @ query`, of a matrix W that is given tile by tile and may be overwritten.

        On a symmetric grid a mirrored tile also counts as its mirror image, in the first result.

        Args:
            diagonal: (rows,), added to W's diagonal; twice on a symmetric grid.
        """
        for_keys = for_keys and not self.symmetric
        twice = 2 if self.symmetric else 1
        if self.single and (only := next(iter(weights), None)) is not None:
            w = only[1]
            if diagonal is not None:
                w.diagonal().add_(diagonal, alpha=twice)
            return w @ keys, w.T @ query if for_keys else None
        if diagonal is None:
            of_query, of_keys = torch.zeros_like(query), torch.zeros_like(keys) if for_keys else None
        else:
            d = twice * diagonal[:, None]
            of_query, of_keys = d * keys, d * query if for_keys else None
        for tile, w in weights:
            of_query[tile.rows].addmm_(w, keys[tile.columns])
            below = of_query if tile.mirrored else of_keys
            if below is not None:
                below[tile.columns].addmm_(w.T, query[tile.rows])
        return of_query, of_keys


def as_number(scale: float | Tensor) -> float | None:
    """A factor as a number; None if it would have to be read from an accelerator."""
    if isinstance(scale, Tensor):
        return float(scale) if scale.device.type == "cpu" else None
    return scale


def strips(tile: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The tile in strips of a few rows, so that temporaries stay small and in cache."""
    height = len(tile) if tile.device.type != "cpu" else max(1, _STRIP // tile.shape[1])
    for start in range(0, len(tile), height):
        strip = slice(start, start + height)
        yield strip, tile[strip]


def _cache_bytes() -> int:
    """Size of the level 2 cache of one core: a tile of this size is still cached when it is read again."""
    try:
        found = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, OSError, ValueError):
        found = 0
    return found if found > 0 else 1 << 20


def _tile_shape(rows: int, columns: int, like: Tensor, flat: bool = False) -> tuple[int, int]:
    """Height and width of a tile: square, unless the matrix is narrower than that, or `flat`."""
    if (side := _TILE.get()) is not None:
        return min(side, rows), min(side, columns)
    if flat and like.device.type == "cpu":
        return min(_FLAT[0], rows), min(_FLAT[1], columns)
    side = default_tile_side(like.device, like.element_size())
    height, width = min(rows, side), min(columns, side)
    return min(rows, max(height, side * side // width)), min(columns, max(width, side * side // height))


def default_tile_side(device: torch.device | str, element_size: int = 4) -> int:
    """The side of a square tile, unless `tile_size` sets it."""
    if torch.device(device).type == "cpu":
        entries = _cache_bytes() * torch.get_num_threads() // element_size
    else:
        entries = _LARGEST**2  # few launches, each large enough to fill the device
    return min(max(int(entries**0.5), _SMALLEST), _LARGEST)


def _permuted(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x.index_select(0, order)


def _restored(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else torch.empty_like(x).index_copy_(0, order, x)
