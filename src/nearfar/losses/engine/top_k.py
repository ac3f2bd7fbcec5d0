"""The most similar keys of each query, tile by tile, for losses over the hardest negatives."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nearfar.losses.arguments import check_query_and_keys, number_in, upcast_half
from nearfar.losses.engine.autograd import entry
from nearfar.losses.engine.backends import require_all_rows
from nearfar.losses.engine.precision import no_autocast
from nearfar.losses.engine.similarity import count_negatives
from nearfar.losses.engine.tiles import Grid

_GATHERED = 1 << 22  # entries of gathered keys held at once in the backward pass


def top_k_similarity(
    query: Tensor, keys: Tensor, *, k: int, query_ids: Tensor | None = None, key_ids: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k largest inner products of each query with keys of another id, and which keys they are.

    Equals `(query @ keys.T).masked_fill(query_ids[:, None] == key_ids, -inf).topk(k)` in memory linear in
    B · k + M; the values carry the exact gradient.

    Args:
        query: (B, D); not normalized here.
        keys: (M, D).
        k: how many; each query must have at least k keys of another id.
        query_ids, key_ids: (B,), (M,) integers; pairs of equal ids are excluded. None: no pair is.

    Returns:
        (B, k) values, largest first, and (B, k) row numbers of `keys`.

    >>> values, index = top_k_similarity(torch.eye(3), torch.eye(3)[[2, 0, 1]], k=1)
    >>> index.flatten().tolist()
    [1, 2, 0]
    """
    check_query_and_keys(query, keys, query_ids, key_ids)
    require_all_rows("top_k_similarity")
    _check_k(k, query_ids, key_ids, keys.shape[0])
    query, keys = upcast_half(query), upcast_half(keys)
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        index = torch.ops.nearfar.top_k(query.detach(), keys.detach(), k, query_ids, key_ids)
        return (query[:, None] * keys[index]).sum(-1), index
    index = _select(query, keys, k, query_ids, key_ids)
    values: Tensor = _Products.apply(query, keys, index)  # type: ignore[no-untyped-call]
    return values, index


def _check_k(k: int, query_ids: Tensor | None, key_ids: Tensor | None, keys: int) -> None:
    """At most the fewest negatives of any row; not read from an accelerator, where a row with fewer has -inf."""
    fewest = keys
    if query_ids is not None and key_ids is not None:
        found = number_in(count_negatives(query_ids, key_ids).min())
        fewest = keys if found is None else int(found)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= fewest:
        raise ValueError(f"k is {k!r}, expected an integer from 1 to {fewest}, the fewest negatives of any row")


def _select(query: Tensor, keys: Tensor, k: int, query_ids: Tensor | None, key_ids: Tensor | None) -> Tensor:
    """(B, k), the most similar keys of each query."""
    grid = Grid(len(query), len(keys), query_ids, key_ids, like=query, flat=True)
    with torch.no_grad(), no_autocast(query):
        sorted_query, sorted_keys = grid.sort_rows(query), grid.sort_columns(keys)
        values = query.new_full((len(query), k), -torch.inf)
        index = torch.zeros(len(query), k, dtype=torch.long, device=query.device)
        for tile, s in grid.similarities(sorted_query, sorted_keys):
            best, where = s.topk(min(k, s.shape[1]))
            best = torch.cat([values[tile.rows], best], 1)
            where = torch.cat([index[tile.rows], where + tile.columns.start], 1)
            values[tile.rows], order = best.topk(k)
            index[tile.rows] = where.gather(1, order)
    return grid.restore_rows(grid.original_columns(index))


torch.library.define(
    "nearfar::top_k", "(Tensor query, Tensor keys, SymInt k, Tensor? query_ids, Tensor? key_ids) -> Tensor"
)
torch.library.impl("nearfar::top_k", "CompositeExplicitAutograd", _select)


@torch.library.register_fake("nearfar::top_k")  # type: ignore[untyped-decorator]
def _select_shape(query: Tensor, keys: Tensor, k: int, query_ids: Tensor | None, key_ids: Tensor | None) -> Tensor:
    return query.new_empty((query.shape[0], k), dtype=torch.long)


@torch.library.register_vmap("nearfar::top_k")  # type: ignore[untyped-decorator]
def _select_one_by_one(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Tensor, int]:
    return torch.stack([torch.ops.nearfar.top_k(*entry(args, in_dims, i)) for i in range(info.batch_size)]), 0


class _Products(torch.autograd.Function):
    """values[b, j] = <query_b, keys_index[b, j]>. With the two below it is closed under differentiation."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, index)
        with no_autocast(query):
            found = [torch.einsum("bd,bkd->bk", query[part], keys[index[part]]) for part in _parts(query, index)]
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, index = ctx.saved_tensors
        return _gather(ctx, 0, grad, keys, index), _scatter(ctx, 1, grad, query, index, len(keys)), None


class _Gather(torch.autograd.Function):
    """(B, D), Σ_j weights[b, j] · keys_index[b, j]."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, keys: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(weights, keys, index)
        found = torch.empty(len(index), keys.shape[1], dtype=keys.dtype, device=keys.device)
        with no_autocast(keys):
            for part in _parts(found, index):
                found[part] = torch.einsum("bk,bkd->bd", weights[part], keys[index[part]])
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, keys, index = ctx.saved_tensors
        of_weights = _Products.apply(grad, keys, index)  # type: ignore[no-untyped-call]
        return of_weights, _scatter(ctx, 1, weights, grad, index, len(keys)), None


class _Scatter(torch.autograd.Function):
    """(M, D), weights[b, j] · query_b added to row index[b, j]."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, query: Tensor, index: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(weights, query, index)
        found = torch.zeros(count, query.shape[1], dtype=query.dtype, device=query.device)
        for part in _parts(query, index):
            found.index_add_(0, index[part].flatten(), (weights[part, :, None] * query[part, None]).flatten(0, 1))
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, query, index = ctx.saved_tensors
        of_weights = _Products.apply(query, grad, index)  # type: ignore[no-untyped-call]
        return of_weights, _gather(ctx, 1, weights, grad, index), None, None


def _gather(ctx: Any, i: int, weights: Tensor, keys: Tensor, index: Tensor) -> Tensor | None:
    return _Gather.apply(weights, keys, index) if ctx.needs_input_grad[i] else None  # type: ignore[no-untyped-call]


def _scatter(ctx: Any, i: int, weights: Tensor, query: Tensor, index: Tensor, count: int) -> Tensor | None:
    return _Scatter.apply(weights, query, index, count) if ctx.needs_input_grad[i] else None  # type: ignore[no-untyped-call]


def _parts(rows: Tensor, index: Tensor) -> list[slice]:
    """Few rows at once, so that the gathered keys take little memory."""
    step = max(1, _GATHERED // (index.shape[1] * rows.shape[1]))
    return [slice(start, start + step) for start in range(0, len(index), step)]
