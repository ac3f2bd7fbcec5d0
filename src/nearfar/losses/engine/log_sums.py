"""Log-sum-exp along the rows, and if asked along the columns, of the matrix scale · query @ keys.T, tile by tile.

With E = exp(scale · S), a_i = grad_i / Σ_j E_ij and b_j likewise for columns, the gradient is W = E ∘ (a ⊕ b) times the
keys, and its transpose times the queries. Backward computes the tiles of E again; only a single tile is kept.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.losses.engine.autograd import (
    Directions,
    Grads,
    Optional,
    Outputs,
    Scalar,
    SumInputs,
)
from nearfar.losses.engine.guide import Guide
from nearfar.losses.engine.precision import no_autocast, rounded
from nearfar.losses.engine.second_order import movement, paired_movement, second_gradients, turned_products
from nearfar.losses.engine.tiles import Grid, Tile, as_number, strips


class Terms(NamedTuple):
    """Which sums are wanted."""

    paired: bool = False  # scale · <query_i, keys_i>, too
    two_way: bool = False  # along the columns, too
    max_norm: float | None = None  # of all rows, where it is known
    engine: str = "auto"  # "tiles" or "triton"
    precision: str = "exact"  # of the products: "tf32" or "bf16"
    narrow: torch.dtype | None = None  # rows of this half precision came in, so products of that type are exact


class LogSums:
    """The kernel of the log-sum-exp."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.grid: Grid | None = None
        self.kept: tuple[Tile, Tensor] | None = None  # the exponentials, if they are a single tile
        self.totals: tuple[Tensor, Optional] | None = None  # sums of exponentials that cannot overflow, in id order

    def fresh(self) -> "LogSums":
        return LogSums(self.terms)

    def sums(self, rows: SumInputs) -> Outputs:
        query, keys, scale = rows.query, rows.keys, rows.scale
        self.grid = grid = grid_of(rows)
        two_way = self.terms.two_way and not grid.symmetric
        with no_autocast(query, self.terms.precision):
            q = grid.sort_rows(rounded(query, self.terms.precision))
            k = q if keys is None else grid.sort_columns(rounded(keys, self.terms.precision))
            bounded = exp_is_safe(q, k, scale, self.terms.max_norm)
            start = 0.0 if bounded else -torch.inf
            of_rows = q.new_full((len(q),), start)
            of_columns = k.new_full((len(k),), start) if two_way else None
            for tile, s in grid.similarities(q, k, scale):
                below = of_rows if tile.mirrored else of_columns
                if bounded:
                    s.exp_()
                    of_rows[tile.rows].add_(s.sum(1))
                    if below is not None:
                        below[tile.columns].add_(s.sum(0))
                    self.kept = (tile, s) if grid.single else None
                else:
                    of_rows[tile.rows] = of_rows[tile.rows].logaddexp(s.logsumexp(1))
                    if below is not None:
                        below[tile.columns] = below[tile.columns].logaddexp(s.logsumexp(0))
            if bounded:
                self.totals = of_rows, of_columns
                of_rows = of_rows.log()
                of_columns = None if of_columns is None else of_columns.log()
            pairs = (query * (query if keys is None else keys)).sum(-1).mul_(scale) if self.terms.paired else None
        columns = q.new_empty(0) if of_columns is None else grid.restore_columns(of_columns)
        return grid.restore_rows(of_rows), columns, q.new_empty(0) if pairs is None else pairs

    def gradients(
        self, rows: SumInputs, sums: Sequence[Tensor], grads: Grads, needs: Sequence[bool]
    ) -> tuple[Optional, Optional, Optional, None]:
        grad_rows, grad_columns, grad_pairs = grads
        query, keys, scale = rows.query, rows.keys, rows.scale
        grid = self.grid or grid_of(rows)
        kept, self.kept = self.kept, None  # overwritten below: a second backward computes it again
        for_keys, for_scale = needs[1:3]
        with no_autocast(query, self.terms.precision):
            q = grid.sort_rows(rounded(query, self.terms.precision))
            k = q if keys is None else grid.sort_columns(rounded(keys, self.terms.precision))
            if not for_scale:  # else at the end: the scale's own gradient is read from the sums without it
                grad_rows, grad_columns, grad_pairs = (
                    None if g is None else g * scale for g in (grad_rows, grad_columns, grad_pairs)
                )
            total, column_total = self.totals or (grid.sort_rows(sums[0]), None)
            side = q.new_zeros(len(q)) if grad_rows is None else grid.sort_rows(grad_rows), total
            across = side if grid.symmetric else None
            if self.terms.two_way and not grid.symmetric and grad_columns is not None:
                column_total = grid.sort_columns(sums[1]) if column_total is None else column_total
                across = grid.sort_columns(grad_columns), column_total
            tiles = grid.similarities(q, k, scale) if kept is None else [kept]
            if self.totals is not None:
                exponentials = tiles if kept else ((tile, s.exp_()) for tile, s in tiles)
                weights = _weights_of_exponentials(exponentials, side, across)
            else:
                weights = weights_of_similarities(tiles, side, across)
            weights = rounded_tiles(weights, self.terms.precision)
            pairs = None if grad_pairs is None else grid.sort_rows(grad_pairs)
            of_query, of_keys = grid.weighted_sums(q, k, weights, for_keys=for_keys, diagonal=pairs)
            grad_scale = None
            if for_scale:
                grad_scale = (q * of_query).sum() * (0.5 if grid.symmetric else 1.0)  # symmetric: each pair came twice
                of_query, of_keys = of_query.mul_(scale), None if of_keys is None else of_keys.mul_(scale)
            grad_query = grid.restore_rows(of_query)
            grad_keys = None if of_keys is None else grid.restore_columns(of_keys)
        return grad_query, grad_keys, grad_scale, None

    def tangents(self, rows: SumInputs, sums: Sequence[Tensor], along: Directions) -> Outputs:
        with no_autocast(rows.query):
            full = _Full(rows, sums, along, self.terms)
            of_rows, of_columns = full.tangents()
            pairs = paired_movement(full.rows, full.along) if self.terms.paired else None
            return full.restore(of_rows, of_columns, pairs)

    def second(
        self, rows: SumInputs, sums: Sequence[Tensor], grads: Grads, along: Directions
    ) -> tuple[Outputs, tuple[Tensor, Tensor, Tensor, Tensor]]:
        with no_autocast(rows.query):
            full = _Full(rows, sums, along, self.terms)
            of_rows, of_columns = full.tangents()
            pairs = paired_movement(full.rows, full.along) if self.terms.paired else None
            grad_rows, grad_columns, grad_pairs = full.sort(grads)

            def weights(tile: Tile, logits: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
                w, h = torch.zeros_like(logits), torch.zeros_like(logits)
                p_rows, p_columns = full.probabilities(tile, logits)
                if grad_rows is not None:
                    part = grad_rows[tile.rows, None] * p_rows
                    w, h = w + part, h + part * (moved - of_rows[tile.rows, None])
                if grad_columns is not None and p_columns is not None and of_columns is not None:
                    part = grad_columns[tile.columns] * p_columns
                    w, h = w + part, h + part * (moved - of_columns[tile.columns])
                return w, h

            of_query, of_keys, of_scale, of_bias = second_gradients(
                full.grid, full.rows, full.along, weights, grad_pairs
            )
            of_query, of_keys = full.grid.restore_rows(of_query), full.grid.restore_columns(of_keys)
            if rows.keys is None:
                of_query, of_keys = of_query + of_keys, of_query.new_empty(0)
            return full.restore(of_rows, of_columns, pairs), (of_query, of_keys, of_scale, of_bias)


class _Full:
    """Rows in id order, with keys of their own: a second pass over rows with themselves uses no symmetry."""

    def __init__(self, rows: SumInputs, sums: Sequence[Tensor], along: Directions, terms: Terms) -> None:
        if rows.keys is None:
            rows, along = rows._replace(keys=rows.query), along._replace(keys=along.query)
        rows = rows._replace(query=rounded(rows.query, terms.precision), keys=rounded_keys(rows, terms.precision))
        self.grid = grid_of(rows)
        self.rows, self.along = sorted_rows(self.grid, rows), sorted_directions(self.grid, along)
        self.two_way = terms.two_way and len(sums[1]) > 0
        self.log_rows = no_empty(self.grid.sort_rows(sums[0]))
        self.log_columns = no_empty(self.grid.sort_columns(sums[1])) if self.two_way else None

    def probabilities(self, tile: Tile, logits: Tensor) -> tuple[Tensor, Optional]:
        """Of each key for each query, and if asked of each query for each key."""
        of_rows = (logits - self.log_rows[tile.rows, None]).exp()
        if self.log_columns is None:
            return of_rows, None
        return of_rows, (logits - self.log_columns[tile.columns]).exp()

    def tangents(self) -> tuple[Tensor, Optional]:
        """In id order."""
        query, keys, scale = self.rows.query, self.rows.keys, self.rows.scale
        assert keys is not None
        of_rows = query.new_zeros(len(query))
        of_columns = query.new_zeros(len(keys)) if self.two_way else None
        for tile, logits in self.grid.similarities(query, keys, scale):
            product = query[tile.rows] @ keys[tile.columns].T
            turned = turned_products(query, keys, self.along, tile.rows, tile.columns, product)
            moved = movement(product, turned, scale, self.along)
            p_rows, p_columns = self.probabilities(tile, logits)
            of_rows[tile.rows] += (p_rows * moved).sum(1)
            if of_columns is not None and p_columns is not None:
                of_columns[tile.columns] += (p_columns * moved).sum(0)
        return of_rows, of_columns

    def sort(self, grads: Grads) -> Grads:
        of_rows, of_columns, of_pairs = grads
        return (
            None if of_rows is None else self.grid.sort_rows(of_rows),
            None if of_columns is None or not self.two_way else self.grid.sort_columns(of_columns),
            None if of_pairs is None else self.grid.sort_rows(of_pairs),
        )

    def restore(self, of_rows: Tensor, of_columns: Optional, pairs: Optional) -> Outputs:
        empty = of_rows.new_empty(0)
        return (
            self.grid.restore_rows(of_rows),
            empty if of_columns is None else self.grid.restore_columns(of_columns),
            empty if pairs is None else self.grid.restore_rows(pairs),
        )


def rounded_keys(rows: SumInputs, precision: str) -> Optional:
    return None if rows.keys is None else rounded(rows.keys, precision)


def rounded_tiles(tiles: Iterator[tuple[Tile, Tensor]], precision: str) -> Iterator[tuple[Tile, Tensor]]:
    """Tiles of weights as the second product takes them."""
    return tiles if precision == "exact" else ((tile, rounded(w, precision)) for tile, w in tiles)


def grid_of(rows: SumInputs) -> Grid:
    guide = None
    if rows.guide_query is not None and rows.guide_keys is not None and rows.guide_limit is not None:
        guide = Guide(rows.guide_query, rows.guide_keys, rows.guide_limit)
    keys = None if rows.keys is None else len(rows.keys)
    return Grid(len(rows.query), keys, rows.query_ids, rows.key_ids, like=rows.query, guide=guide)


def sorted_rows(grid: Grid, rows: SumInputs) -> SumInputs:
    assert rows.keys is not None
    return rows._replace(query=grid.sort_rows(rows.query), keys=grid.sort_columns(rows.keys))


def sorted_directions(grid: Grid, along: Directions) -> Directions:
    return along._replace(
        query=None if along.query is None else grid.sort_rows(along.query),
        keys=None if along.keys is None else grid.sort_columns(along.keys),
    )


def no_empty(log_sum: Tensor) -> Tensor:
    """An empty sum as +inf: exp(s - inf) is 0."""
    return log_sum.masked_fill(log_sum.isneginf(), torch.inf)


def exp_is_safe(query: Tensor, keys: Tensor, scale: Scalar, max_norm: float | None) -> bool:
    """Whether, by Cauchy-Schwarz, no exponential can overflow: then no maximum must be subtracted.

    On an accelerator nothing is read for it: False, unless it is known.
    """
    factor = as_number(scale)
    if factor is None or (max_norm is None and query.device.type != "cpu"):
        return False
    if max_norm is None:
        query_norm = torch.linalg.vector_norm(query, dim=1).max()
        key_norm = query_norm if keys is query else torch.linalg.vector_norm(keys, dim=1).max()
        largest = float(abs(factor) * query_norm * key_norm)
    else:
        largest = abs(factor) * max_norm**2
    return largest < exp_limit(query.dtype)


def exp_limit(dtype: torch.dtype) -> float:
    """The largest logit whose plain exponential is safe: half of the range, since sums and products must fit, too."""
    return math.log(torch.finfo(dtype).max) / 2


_Side = tuple[Tensor, Tensor]  # gradient and sum (or its logarithm) of each row, or of each column


def _weights_of_exponentials(
    tiles: Iterable[tuple[Tile, Tensor]], rows: _Side, columns: _Side | None
) -> Iterator[tuple[Tile, Tensor]]:
    """Each tile of E ∘ (a ⊕ b), written over the tile of E."""
    a = _grad_over_sum(*rows)
    b = None if columns is None else a if columns is rows else _grad_over_sum(*columns)
    for tile, e in tiles:
        for strip, part in strips(e):
            weight = a[tile.rows][strip, None]
            part.mul_(weight if b is None else weight + b[tile.columns])
        yield tile, e


def _grad_over_sum(grad: Tensor, total: Tensor) -> Tensor:
    """grad / Σ exp, zero where the sum is empty."""
    return torch.where(total == 0, 0.0, grad / total)


def weights_of_similarities(
    tiles: Iterable[tuple[Tile, Tensor]], rows: _Side, columns: _Side | None
) -> Iterator[tuple[Tile, Tensor]]:
    """The same from tiles of scale · S. Each exponential is divided by its sum, so that none overflows."""
    (grad, total), (grad_columns, total_columns) = rows, columns or rows
    total, total_columns = no_empty(total), no_empty(total_columns)
    for tile, s in tiles:
        for strip, part in strips(s):
            across = (part - total_columns[tile.columns]).exp_() if columns else None
            part.sub_(total[tile.rows][strip, None]).exp_().mul_(grad[tile.rows][strip, None])
            if across is not None:
                part.addcmul_(across, grad_columns[tile.columns])
        yield tile, s
