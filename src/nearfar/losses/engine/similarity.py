"""The primitive under every softmax loss: the log-sum-exp of similarities, without their matrix.

Each function equals the plain line in its docstring, value and gradient, in memory linear in the number of rows.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearfar.losses.arguments import (
    accumulable,
    as_scalar,
    check_finite,
    check_ids,
    check_pair,
    check_query_and_keys,
    unit,
)
from nearfar.losses.engine.backends import current_way, refuse_elsewhere
from nearfar.losses.engine.tiles import Grid, Tile, own_ids, strips


def similarity_logsumexp(
    query: Tensor,
    keys: Tensor,
    *,
    scale: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> Tensor:
    """`log Σ_{j: key_ids[j] != query_ids[i]} exp(scale · <query_i, keys_j>)`, exact, in memory linear in B + M.

    Equals `(scale * query @ keys.T).masked_fill(query_ids[:, None] == key_ids, -inf).logsumexp(1)`.
    When `keys` is the very tensor `query`, half the tiles serve both triangles.

    Args:
        query: (B, D); not normalised here.
        keys: (M, D).
        scale: multiplies the inner products; a tensor is learned.
        query_ids, key_ids: (B,), (M,) integers; equal ids are left out of the sum. None: nothing is.

    Returns:
        (B,), float32 for half-precision input; -inf, with a zero gradient, where every key is left out.

    >>> _ = torch.manual_seed(0)
    >>> z, ids = torch.randn(5, 3), torch.tensor([0, 0, 1, 2, 2])
    >>> dense = (2 * z @ z.T).masked_fill(ids[:, None] == ids, -torch.inf).logsumexp(1)
    >>> torch.allclose(similarity_logsumexp(z, z, scale=2, query_ids=ids, key_ids=ids), dense)
    True
    """
    return _sums(query, keys, scale, query_ids, key_ids).rows


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
    sums = _sums(query, keys, scale, query_ids, key_ids, two_way=True)
    return sums.rows, sums.rows if sums.columns is None else sums.columns


def near_and_far(
    query: Tensor, keys: Tensor, *, scale: Tensor, ids: Tensor | None, longest: float | None = None
) -> tuple[Tensor, Tensor]:
    """`scale · <query_i, keys_i>`, and `similarity_logsumexp` of the queries over the keys of other ids.

    One function of both: the gradient of the pairs is where the sums of the backward pass start.

    Args:
        longest: length that no row exceeds, but for rounding, where it is known: 1 of normalised rows.
    """
    sums = _sums(query, keys, scale, ids, ids, paired=True, longest=longest)
    return sums.pairs, sums.rows


def near_and_far_two_way(
    query: Tensor, keys: Tensor, *, scale: Tensor, ids: Tensor | None, longest: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`near_and_far`, and the same log-sum-exp of the keys over the queries."""
    sums = _sums(query, keys, scale, ids, ids, paired=True, two_way=True, longest=longest)
    return sums.pairs, sums.rows, sums.rows if sums.columns is None else sums.columns


def paired_similarity(x: Tensor, y: Tensor) -> Tensor:
    """(B,), the inner product of each row of `x` with the same row of `y`, in the type sums are kept in."""
    return (accumulable(x) * accumulable(y)).sum(-1)


def twin_similarity(z: Tensor) -> Tensor:
    """(2B,), the inner product of each of 2B stacked views with the other view of its sample."""
    z1, z2 = z.unflatten(0, (2, -1)).unbind()
    return paired_similarity(z1, z2).repeat(2)


def sample_ids(z: Tensor, ids: Tensor | None) -> Tensor:
    """(B,), the ids given, or one of its own for each row of `z`."""
    if ids is None:
        refuse_elsewhere("a loss without ids")
        return own_ids(len(z), 1, z)
    check_ids("ids", ids, len(z), z)
    return ids


def stack_views(z1: Tensor, z2: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor]:
    """(2B, D) normalised rows, all of z1 before all of z2, and their (2B,) ids: both views of a sample share one."""
    check_pair("z1", z1, "z2", z2)
    if ids is None:
        refuse_elsewhere("a loss without ids")
    both = own_ids(len(z1), 2, z1) if ids is None else sample_ids(z1, ids).repeat(2)
    return unit(torch.cat([z1, z2])), both


def count_negatives(query_ids: Tensor, key_ids: Tensor) -> Tensor:
    """(B,), how many keys have an id other than the query's."""
    refuse_elsewhere("the number of negatives")
    query_ids, ordered = query_ids.long(), key_ids.long().sort().values
    equal = torch.searchsorted(ordered, query_ids, right=True) - torch.searchsorted(ordered, query_ids)
    return len(key_ids) - equal


class _Sums(NamedTuple):
    """What `_LogSumExp` returns."""

    rows: Tensor  # (B,)
    columns: Tensor | None  # (M,); None where they are not asked for, or are the rows'
    pairs: Tensor  # (B,), scale · <query_i, keys_i>, given that both have the same ids; empty where not asked for


def _sums(
    query: Tensor,
    keys: Tensor,
    scale: float | Tensor,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    *,
    paired: bool = False,
    two_way: bool = False,
    longest: float | None = None,
) -> _Sums:
    check_query_and_keys(query, keys, query_ids, key_ids)
    check_finite("scale", scale)
    symmetric = keys is query and key_ids is query_ids
    q = accumulable(query)
    k = None if symmetric else accumulable(keys)
    if (way := current_way()) is not None:
        other, factor = q if k is None else k, as_scalar(scale, q)
        rows, columns = way.log_sums(q, other, factor, query_ids, key_ids, two_way)
        return _Sums(rows, columns, factor * paired_similarity(q, other) if paired else q.new_empty(0))
    grid = Grid(len(q), None if k is None else len(k), query_ids, key_ids, like=q)
    found = _LogSumExp.apply(q, k, as_scalar(scale, q), grid, paired, two_way, longest)  # type: ignore[no-untyped-call]
    return _Sums(*found)


@torch.no_grad()
def block_log_sums(
    query: Tensor, keys: Tensor, scale: Tensor, query_ids: Tensor | None, key_ids: Tensor | None, two_way: bool
) -> tuple[Tensor, Tensor | None]:
    """The sums of queries over some of their keys, and of those over the queries; for who walks the keys by blocks."""
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
    """Of the inner products' queries and keys, before the scale, given gradient and whole log-sum-exp of each row.

    Args:
        rows: (B,), (B,), of the queries over all their keys, of which `keys` are some.
        columns: (M,), (M,), of the keys over all queries; None where they are not wanted.
    """
    grid = Grid(len(query), len(keys), query_ids, key_ids, like=query)
    with exact(query):
        q, k = grid.sort_rows(query), grid.sort_columns(keys)
        row_side = grid.sort_rows(rows[0]), grid.sort_rows(rows[1])
        column_side = None if columns is None else (grid.sort_columns(columns[0]), grid.sort_columns(columns[1]))
        weights = _weights_of_similarities(grid.similarities(q, k, scale), row_side, column_side)
        of_query, of_keys = grid.weighted_sums(q, k, weights, for_keys=True)
    assert of_keys is not None
    return grid.restore_rows(of_query), grid.restore_columns(of_keys)


Backward = Callable[..., tuple[Tensor | None, ...]]


def once_differentiable(backward: Backward) -> Backward:
    """A backward pass whose result refuses to be differentiated.

    torch's decorator of this name refuses only where the incoming gradient has a graph of its own; where it is
    constant, as under a plain sum, a second derivative would pass as zero.
    """

    @wraps(backward)
    def first_only(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():  # it is under create_graph=True
            return found
        return tuple(None if g is None else _Refused.apply(g, *ctx.saved_tensors) for g in found)  # type: ignore[no-untyped-call]

    return first_only


class _Refused(torch.autograd.Function):
    """The first argument, as something that depends on all of them and cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *_: Tensor | None) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise RuntimeError("a loss of nearfar was differentiated twice, expected once: it has no second derivative")


class _LogSumExp(torch.autograd.Function):
    """Log-sum-exp along the rows, and along the columns if wanted, of the matrix scale · query @ keys.T.

    With E = exp(scale · S), a_i = grad_i / Σ_j E_ij and b_j likewise for columns, the gradient is W = E ∘ (a ⊕ b)
    times the keys, and its transpose times the queries. Backward computes the tiles of E anew and keeps none,
    unless there is only one.
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
        longest: float | None,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        ctx.grid, ctx.two_way, ctx.kept = grid, two_way and not grid.symmetric, None
        ctx.set_materialize_grads(False)
        with exact(query):
            q = grid.sort_rows(query)
            k = q if keys is None else grid.sort_columns(keys)
            ctx.bounded = _exp_is_safe(q, k, scale, longest)
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
        kept, ctx.kept = ctx.kept, None  # used up below: a second backward computes it anew
        with exact(query):
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


def exact(like: Tensor) -> AbstractContextManager[Any]:
    """Autocast off: what follows is computed in the type its tensors have."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _exp_is_safe(query: Tensor, keys: Tensor, scale: Tensor, longest: float | None) -> bool:
    """Whether no similarity, by Cauchy-Schwarz, nears the range of exp: then no maximum need be subtracted."""
    if longest is None:
        longest_query = torch.linalg.vector_norm(query, dim=1).max()
        longest_key = longest_query if keys is query else torch.linalg.vector_norm(keys, dim=1).max()
        furthest = float(scale.abs() * longest_query * longest_key)
    else:
        furthest = abs(float(scale)) * longest**2
    return furthest < math.log(torch.finfo(query.dtype).max) / 2  # half: the sums and their product need room, too


_Side = tuple[Tensor, Tensor]  # gradient and sum of each row, or of each column: of exponentials, or its logarithm


def _weights_of_exponentials(
    tiles: Iterable[tuple[Tile, Tensor]], rows: _Side, columns: _Side | None
) -> Iterator[tuple[Tile, Tensor]]:
    """Each tile of E ∘ (a ⊕ b), written over the tile of E."""
    a = _share(*rows)
    b = None if columns is None else a if columns is rows else _share(*columns)
    for tile, e in tiles:
        for strip, part in strips(e):
            share = a[tile.rows][strip, None]
            part.mul_(share if b is None else share + b[tile.columns])
        yield tile, e


def _share(grad: Tensor, total: Tensor) -> Tensor:
    """grad / Σ exp, zero where the sum is empty."""
    return torch.where(total == 0, 0.0, grad / total)


def _weights_of_similarities(
    tiles: Iterable[tuple[Tile, Tensor]], rows: _Side, columns: _Side | None
) -> Iterator[tuple[Tile, Tensor]]:
    """The same, written over the tile of scale · S, each exponential relative to its own sum: none overflows."""
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
