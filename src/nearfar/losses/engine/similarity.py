"""The primitive under every softmax loss: the log-sum-exp of similarities, without holding their matrix.

Each function equals the plain line in its docstring, value and gradient, in memory linear in the number of rows.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearfar.losses.arguments import (
    as_scalar,
    check_finite,
    check_ids,
    check_query_and_keys,
    upcast_half,
)
from nearfar.losses.engine.autograd import no_autocast, once_differentiable
from nearfar.losses.engine.backends import current_backend, require_all_rows
from nearfar.losses.engine.guide import Guide
from nearfar.losses.engine.tiles import Grid, Tile, default_ids, strips


def similarity_logsumexp(
    query: Tensor,
    keys: Tensor,
    *,
    scale: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    guide: Guide | None = None,
) -> Tensor:
    """`log Σ_{j: key_ids[j] != query_ids[i]} exp(scale · <query_i, keys_j>)`, exact, in memory linear in B + M.

    Equals `(scale * query @ keys.T).masked_fill(query_ids[:, None] == key_ids, -inf).logsumexp(1)`.
    If `keys` is the same tensor as `query`, half of the tiles are enough.

    Args:
        query: (B, D); not normalized here.
        keys: (M, D).
        scale: multiplies the inner products; a tensor is learned.
        query_ids, key_ids: (B,), (M,) integers; pairs of equal ids are excluded. None: no pair is.
        guide: excludes further pairs, by the similarities of another encoder.

    Returns:
        (B,), float32 for half-precision input; -inf, with a zero gradient, where every key is excluded.

    >>> _ = torch.manual_seed(0)
    >>> z, ids = torch.randn(5, 3), torch.tensor([0, 0, 1, 2, 2])
    >>> dense = (2 * z @ z.T).masked_fill(ids[:, None] == ids, -torch.inf).logsumexp(1)
    >>> torch.allclose(similarity_logsumexp(z, z, scale=2, query_ids=ids, key_ids=ids), dense)
    True
    """
    return _logsumexp(query, keys, scale, query_ids, key_ids, guide=guide).rows


def similarity_logsumexp_two_way(
    query: Tensor,
    keys: Tensor,
    *,
    scale: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`similarity_logsumexp` of the queries over the keys and of the keys over the queries, from one pass.

    Returns:
        (B,) and (M,): the log-sum-exp along the rows and along the columns of the same matrix.
    """
    sums = _logsumexp(query, keys, scale, query_ids, key_ids, two_way=True)
    return sums.rows, sums.rows if sums.columns is None else sums.columns


def positive_and_logsumexp(
    query: Tensor, keys: Tensor, *, scale: Tensor, ids: Tensor | None, max_norm: float | None = None
) -> tuple[Tensor, Tensor]:
    """`scale · <query_i, keys_i>`, and `similarity_logsumexp` of the queries over the keys of other ids.

    Both in one autograd function: the sums of the backward pass start from the gradient of the positives.

    Args:
        max_norm: of all rows, up to rounding, where it is known: 1 for normalized rows.
    """
    sums = _logsumexp(query, keys, scale, ids, ids, paired=True, max_norm=max_norm)
    return sums.pairs, sums.rows


def positive_and_logsumexp_two_way(
    query: Tensor, keys: Tensor, *, scale: Tensor, ids: Tensor | None, max_norm: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`positive_and_logsumexp`, and the same log-sum-exp of the keys over the queries."""
    sums = _logsumexp(query, keys, scale, ids, ids, paired=True, two_way=True, max_norm=max_norm)
    return sums.pairs, sums.rows, sums.rows if sums.columns is None else sums.columns


def paired_similarity(x: Tensor, y: Tensor) -> Tensor:
    """(B,), the inner product of each row of `x` with the same row of `y`; of half precision in float32."""
    return (upcast_half(x) * upcast_half(y)).sum(-1)


def sample_ids(z: Tensor, ids: Tensor | None) -> Tensor:
    """(B,), the given ids, or a different one for each row of `z`."""
    if ids is None:
        require_all_rows("a loss without ids")
        return default_ids(len(z), 1, z)
    check_ids("ids", ids, len(z), z)
    return ids


def count_negatives(query_ids: Tensor, key_ids: Tensor) -> Tensor:
    """(B,), how many keys have an id other than the query's."""
    require_all_rows("counting negatives")
    query_ids, ordered = query_ids.long(), key_ids.long().sort().values
    equal = torch.searchsorted(ordered, query_ids, right=True) - torch.searchsorted(ordered, query_ids)
    return len(key_ids) - equal


class _Sums(NamedTuple):
    """Outputs of `_LogSumExp`."""

    rows: Tensor  # (B,)
    columns: Tensor | None  # (M,); None if not asked for, or equal to the rows'
    pairs: Tensor  # (B,), scale · <query_i, keys_i>, if both have the same ids; empty if not asked for


def _logsumexp(
    query: Tensor,
    keys: Tensor,
    scale: float | Tensor,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    *,
    paired: bool = False,
    two_way: bool = False,
    max_norm: float | None = None,
    guide: Guide | None = None,
) -> _Sums:
    check_query_and_keys(query, keys, query_ids, key_ids)
    check_finite("scale", scale)
    symmetric = keys is query and key_ids is query_ids and guide is None
    q = upcast_half(query)
    k = None if symmetric else upcast_half(keys)
    if (backend := current_backend()) is not None:
        other, factor = q if k is None else k, as_scalar(scale, q)
        rows, columns = backend.logsumexp(q, other, factor, query_ids, key_ids, two_way, guide)
        return _Sums(rows, columns, factor * paired_similarity(q, other) if paired else q.new_empty(0))
    grid = Grid(len(q), None if k is None else len(k), query_ids, key_ids, like=q, guide=guide)
    found = _LogSumExp.apply(q, k, as_scalar(scale, q), grid, paired, two_way, max_norm)  # type: ignore[no-untyped-call]
    return _Sums(*found)


@torch.no_grad()
def block_log_sums(
    query: Tensor, keys: Tensor, scale: Tensor, query_ids: Tensor | None, key_ids: Tensor | None, two_way: bool
) -> tuple[Tensor, Tensor | None]:
    """The sums of queries over a block of their keys, and of that block over the queries; without autograd."""
    grid = Grid(len(query), len(keys), query_ids, key_ids, like=query)
    rows, columns, _ = _LogSumExp.apply(query, keys, scale, grid, False, two_way, None)  # type: ignore[no-untyped-call]
    return rows, columns


@torch.no_grad()
def block_log_sum_gradients(
    query: Tensor,
    keys: Tensor,
    scale: Tensor,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    rows: tuple[Tensor, Tensor],
    columns: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Gradients in queries and keys, without the factor `scale`, for a block of keys.

    Args:
        rows: (B,), (B,): gradient and log-sum-exp of each query over all keys, not only this block.
        columns: (M,), (M,), the same of each key over all queries; None if not needed.
    """
    grid = Grid(len(query), len(keys), query_ids, key_ids, like=query)
    with no_autocast(query):
        q, k = grid.sort_rows(query), grid.sort_columns(keys)
        row_side = grid.sort_rows(rows[0]), grid.sort_rows(rows[1])
        column_side = None if columns is None else (grid.sort_columns(columns[0]), grid.sort_columns(columns[1]))
        weights = _weights_of_similarities(grid.similarities(q, k, scale), row_side, column_side)
        of_query, of_keys = grid.weighted_sums(q, k, weights, for_keys=True)
    assert of_keys is not None
    return grid.restore_rows(of_query), grid.restore_columns(of_keys)


class _LogSumExp(torch.autograd.Function):
    """Log-sum-exp along the rows, and if asked along the columns, of the matrix scale · query @ keys.T.

    With E = exp(scale · S), a_i = grad_i / Σ_j E_ij and b_j likewise for columns, the gradient is W = E ∘ (a ⊕ b)
    times the keys, and its transpose times the queries. Backward computes the tiles of E again; only a single tile is
    kept.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor | None,
        scale: Tensor,
        grid: Grid,
        paired: bool,
        two_way: bool,
        max_norm: float | None,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        ctx.grid, ctx.two_way, ctx.kept = grid, two_way and not grid.symmetric, None
        ctx.set_materialize_grads(False)
        with no_autocast(query):
            q = grid.sort_rows(query)
            k = q if keys is None else grid.sort_columns(keys)
            ctx.bounded = _exp_is_safe(q, k, scale, max_norm)
            start = 0.0 if ctx.bounded else -torch.inf
            of_rows = q.new_full((len(q),), start)
            of_columns = k.new_full((len(k),), start) if ctx.two_way else None
            for tile, s in grid.similarities(q, k, scale):
                below = of_rows if tile.mirrored else of_columns
                if ctx.bounded:
                    s.exp_()
                    of_rows[tile.rows].add_(s.sum(1))
                    if below is not None:
                        below[tile.columns].add_(s.sum(0))
                    ctx.kept = (tile, s) if grid.single else None
                else:
                    of_rows[tile.rows] = of_rows[tile.rows].logaddexp(s.logsumexp(1))
                    if below is not None:
                        below[tile.columns] = below[tile.columns].logaddexp(s.logsumexp(0))
            ctx.save_for_backward(query, keys, scale, of_rows, of_columns)
            if ctx.bounded:
                of_rows = of_rows.log()
                of_columns = None if of_columns is None else of_columns.log()
            pairs = paired_similarity(q, k).mul_(scale) if paired else q.new_empty(0)
        of_columns = None if of_columns is None else grid.restore_columns(of_columns)
        return grid.restore_rows(of_rows), of_columns, grid.restore_rows(pairs) if paired else pairs

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_rows: Tensor | None, grad_columns: Tensor | None, grad_pairs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        query, keys, scale, of_rows, of_columns = ctx.saved_tensors
        grid: Grid = ctx.grid
        kept, ctx.kept = ctx.kept, None  # overwritten below: a second backward computes it again
        with no_autocast(query):
            q = grid.sort_rows(query)
            k = q if keys is None else grid.sort_columns(keys)
            for_keys, for_scale = ctx.needs_input_grad[1:3]
            if not for_scale:  # else at the end: the scale's own gradient is read from the sums without it
                grad_rows, grad_columns, grad_pairs = (
                    None if g is None else g * scale for g in (grad_rows, grad_columns, grad_pairs)
                )
            rows = torch.zeros_like(of_rows) if grad_rows is None else grid.sort_rows(grad_rows), of_rows
            columns = rows if grid.symmetric else None
            if ctx.two_way and grad_columns is not None:
                columns = grid.sort_columns(grad_columns), of_columns
            tiles = grid.similarities(q, k, scale) if kept is None else [kept]
            if ctx.bounded:
                exponentials = tiles if kept else ((tile, s.exp_()) for tile, s in tiles)
                weights = _weights_of_exponentials(exponentials, rows, columns)
            else:
                weights = _weights_of_similarities(tiles, rows, columns)
            pairs = None if grad_pairs is None else grid.sort_rows(grad_pairs)
            of_query, of_keys = grid.weighted_sums(q, k, weights, for_keys=for_keys, diagonal=pairs)
            grad_scale = None
            if for_scale:
                grad_scale = (q * of_query).sum() * (0.5 if grid.symmetric else 1.0)  # symmetric: each pair came twice
                of_query, of_keys = of_query.mul_(scale), None if of_keys is None else of_keys.mul_(scale)
            grad_query = grid.restore_rows(of_query)
            grad_keys = None if of_keys is None else grid.restore_columns(of_keys)
        return grad_query, grad_keys, grad_scale, None, None, None, None


def _exp_is_safe(query: Tensor, keys: Tensor, scale: Tensor, max_norm: float | None) -> bool:
    """Whether, by Cauchy-Schwarz, no exponential can overflow: then no maximum must be subtracted."""
    if max_norm is None:
        query_norm = torch.linalg.vector_norm(query, dim=1).max()
        key_norm = query_norm if keys is query else torch.linalg.vector_norm(keys, dim=1).max()
        largest = float(scale.abs() * query_norm * key_norm)
    else:
        largest = abs(float(scale)) * max_norm**2
    return largest < math.log(torch.finfo(query.dtype).max) / 2  # half: sums and products must fit, too


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


def _weights_of_similarities(
    tiles: Iterable[tuple[Tile, Tensor]], rows: _Side, columns: _Side | None
) -> Iterator[tuple[Tile, Tensor]]:
    """The same from tiles of scale · S. Each exponential is divided by its sum, so that none overflows."""
    (grad, total), (grad_columns, total_columns) = rows, columns or rows
    total = total.masked_fill(total.isneginf(), torch.inf)  # an empty sum: exp(s - inf) is 0
    total_columns = total_columns.masked_fill(total_columns.isneginf(), torch.inf)
    for tile, s in tiles:
        for strip, part in strips(s):
            across = (part - total_columns[tile.columns]).exp_() if columns else None
            part.sub_(total[tile.rows][strip, None]).exp_().mul_(grad[tile.rows][strip, None])
            if across is not None:
                part.addcmul_(across, grad_columns[tile.columns])
        yield tile, s
