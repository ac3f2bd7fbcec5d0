"""The most similar keys of each query, tile by tile, for losses over the hardest negatives."""

from typing import Any

import torch
from torch import Tensor

from nearfar.losses.arguments import check_query_and_keys, upcast_half
from nearfar.losses.engine.autograd import no_autocast, once_differentiable
from nearfar.losses.engine.backends import require_all_rows
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
    fewest = len(keys)
    if query_ids is not None and key_ids is not None:
        fewest = int(count_negatives(query_ids, key_ids).min())
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= fewest:
        raise ValueError(f"k is {k!r}, expected an integer from 1 to {fewest}, the fewest negatives of any row")
    values, index = _TopK.apply(upcast_half(query), upcast_half(keys), k, query_ids, key_ids)  # type: ignore[no-untyped-call]
    return values, index


class _TopK(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, k: int, query_ids: Tensor | None, key_ids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        grid = Grid(len(query), len(keys), query_ids, key_ids, like=query, flat=True)
        with no_autocast(query):
            sorted_query, sorted_keys = grid.sort_rows(query), grid.sort_columns(keys)
            values = query.new_full((len(query), k), -torch.inf)
            index = torch.zeros(len(query), k, dtype=torch.long, device=query.device)
            for tile, s in grid.similarities(sorted_query, sorted_keys):
                best, where = s.topk(min(k, s.shape[1]))
                best = torch.cat([values[tile.rows], best], 1)
                where = torch.cat([index[tile.rows], where + tile.columns.start], 1)
                values[tile.rows], order = best.topk(k)
                index[tile.rows] = where.gather(1, order)
        values, index = grid.restore_rows(values), grid.restore_rows(grid.original_columns(index))
        ctx.save_for_backward(query, keys, index)
        ctx.mark_non_differentiable(index)
        return values, index

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, index = ctx.saved_tensors
        grad_query, grad_keys = torch.empty_like(query), torch.zeros_like(keys)
        step = max(1, _GATHERED // (index.shape[1] * query.shape[1]))
        with no_autocast(query):
            for start in range(0, len(query), step):
                part = slice(start, start + step)
                g, i = grad[part], index[part]  # (step, k)
                grad_query[part] = torch.einsum("bk,bkd->bd", g, keys[i])
                grad_keys.index_add_(0, i.flatten(), (g[:, :, None] * query[part, None]).flatten(0, 1))
        return grad_query, grad_keys, None, None, None
