"""The sums of small batches: the whole matrix by plain torch, which costs fewer calls than tiles and is as exact.

There the calls, not the entries, take the time.
"""

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.losses.engine.autograd import Outputs, Scalar, SumInputs
from nearfar.losses.engine.backends import DENSE
from nearfar.losses.engine.layout import is_default
from nearfar.losses.engine.log_sums import LogSums, Terms
from nearfar.losses.engine.precision import no_autocast, product
from nearfar.losses.engine.softplus_sums import SoftplusSums
from nearfar.losses.engine.tiles import current_tile

# Up to how many entries of the matrix; measured, as the number where tiles take about the same time.
_FEW_OF_LOG_SUMS, _FEW_OF_SOFTPLUS = 1 << 15, 1 << 16
_FEW_IN_GRAPH = 1 << 18
_FEW_OF_OWN_ROWS = 1 << 14  # rows compared with themselves: a tile has both sides of the gradient in one


def is_small(kernel: LogSums | SoftplusSums, rows: SumInputs) -> bool:
    """Whether the whole matrix is the faster way; False within `tile_size`."""
    if rows.guide_query is not None or rows.query.device.type != "cpu" or current_tile() is not None:
        return False
    keys = rows.query if rows.keys is None else rows.keys
    few = _FEW_OF_SOFTPLUS
    if isinstance(kernel, LogSums):
        few = _FEW_OF_OWN_ROWS if rows.keys is None else _FEW_OF_LOG_SUMS
    return rows.query.shape[0] * keys.shape[0] <= few


def small_sums(kernel: LogSums | SoftplusSums, rows: SumInputs) -> Outputs | None:
    """The kernel's sums; None if a row has nothing to sum, whose gradient needs care."""
    query, scale = rows.query, rows.scale
    keys = query if rows.keys is None else rows.keys
    mask = None
    if rows.query_ids is not None and rows.key_ids is not None:
        mask = _mask(rows.query_ids, rows.key_ids)
        if mask is None:
            return None
    if isinstance(kernel, LogSums):
        return _log_sums(rows, mask, kernel.terms)
    with no_autocast(query):
        each = F.softplus(scale * product(query, keys) + rows.bias, threshold=40.0)
        empty = query.new_empty(0)
        return (each if mask is None else each.masked_fill(mask, 0.0)).sum(1), empty, empty


def _log_sums(rows: SumInputs, mask: Tensor | None, terms: Terms) -> Outputs:
    found: list[Tensor] = [*_LogSums.apply(rows.query, rows.keys, rows.scale, mask, terms)]  # type: ignore[no-untyped-call]
    empty = rows.query.new_empty(0)
    pairs = found.pop() if terms.paired else empty
    return found[0], found[1] if len(found) > 1 else empty, pairs


def _plain_log_sums(
    query: Tensor, keys: Tensor | None, scale: Scalar, mask: Tensor | None, terms: Terms
) -> tuple[Tensor, ...]:
    """Along the rows, if asked along the columns of a matrix that is not symmetric, and if asked its diagonal."""
    with no_autocast(query):
        logits = scale * product(query, query if keys is None else keys)
        pairs = logits.diagonal()
        if mask is not None:
            logits = logits.masked_fill(mask, -torch.inf)
        sums = [logits.logsumexp(dim) for dim in _dims(keys, terms)]
        return *sums, *([pairs] if terms.paired else [])


def _dims(keys: Tensor | None, terms: Terms) -> tuple[int, ...]:
    return (1, 0) if terms.two_way and keys is not None else (1,)


class _LogSums(torch.autograd.Function):
    """`_plain_log_sums`, with a gradient of few operations."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor | None, scale: Scalar, mask: Tensor | None, terms: Terms
    ) -> tuple[Tensor, ...]:
        with no_autocast(query):
            s = (query @ (query if keys is None else keys).T).mul_(scale)
        pairs = [s.diagonal().clone()] if terms.paired else []
        if mask is not None:
            s.masked_fill_(mask, -torch.inf)
        sums = [s.logsumexp(dim) for dim in _dims(keys, terms)]
        ctx.set_materialize_grads(False)
        ctx.number = None if isinstance(scale, Tensor) else scale
        ctx.terms = terms
        ctx.save_for_backward(query, keys, scale if isinstance(scale, Tensor) else None, mask, s, *sums)
        return *sums, *pairs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        query, keys, learned, mask, s, *sums = ctx.saved_tensors
        scale = ctx.number if learned is None else learned
        if torch.is_grad_enabled():  # under create_graph: as a function of the rows
            return *_plain_gradients((query, keys, scale, mask, ctx.terms), grads, ctx.needs_input_grad), None, None
        weights: Tensor | None = None
        for dim, (total, grad) in enumerate(zip(sums, grads, strict=False)):
            if grad is not None:
                part = s.sub(total.unsqueeze(1 - dim)).exp_().mul_(grad.unsqueeze(1 - dim))
                weights = part if weights is None else weights.add_(part)
        if ctx.terms.paired and (grad := grads[-1]) is not None:
            weights = torch.zeros_like(s) if weights is None else weights
            weights.diagonal().add_(grad)
        if weights is None:
            return None, None, None, None, None
        with no_autocast(query):
            own = weights.T + weights if keys is None else weights
            of_query = own @ (query if keys is None else keys)
            of_keys = weights.T @ query if keys is not None and ctx.needs_input_grad[1] else None
        of_scale = None
        if learned is not None and ctx.needs_input_grad[2]:
            of_scale = (query * of_query).sum() * (0.5 if keys is None else 1.0)  # of itself, each entry came twice
        return of_query.mul_(scale), None if of_keys is None else of_keys.mul_(scale), of_scale, None, None


def _plain_gradients(
    given: tuple[Any, ...], grads: tuple[Tensor | None, ...], needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """In query, keys and scale, differentiable again."""
    wanted = [x for x, need in zip(given[:3], needs, strict=False) if need]
    pairs = [(total, grad) for total, grad in zip(_plain_log_sums(*given), grads, strict=True) if grad is not None]
    outputs, slopes = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, slopes, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needs[:3]]


def _mask(query_ids: Tensor, key_ids: Tensor) -> Tensor | None:
    """Which entries have equal ids; None if these are all of a row or of a column."""
    if query_ids is key_ids and is_default(query_ids):
        return _default_mask(query_ids)
    return _checked_mask(query_ids, key_ids)


def _checked_mask(query_ids: Tensor, key_ids: Tensor) -> Tensor | None:
    mask = query_ids[:, None] == key_ids
    return None if bool(mask.all(1).any() | mask.all(0).any()) else mask


_default_mask = lru_cache(maxsize=4)(lambda ids: _checked_mask(ids, ids))


def is_small_in_graph(terms: Terms, rows: SumInputs) -> bool:
    """Whether torch.compile should see the whole matrix, no larger than a tile: it fuses what an operator would hide.

    The choice is a guard on the batch size, which an exported program must not have.
    """
    plain = terms.engine == "auto" and terms.precision == "exact" and rows.guide_query is None
    if not plain or rows.query.device.type != "cpu" or torch.compiler.is_exporting():
        return False
    keys = rows.query if rows.keys is None else rows.keys
    return rows.query.shape[0] * keys.shape[0] <= _FEW_IN_GRAPH


def traced_sums(name: str, terms: Terms, rows: SumInputs) -> Outputs:
    """The sums by plain torch, for torch.compile."""
    query, keys, empty = rows.query, rows.query if rows.keys is None else rows.keys, rows.query.new_empty(0)
    scale, bias = (x if isinstance(x, Tensor) else query.new_full((), x) for x in (rows.scale, rows.bias))
    if name == "softplus_sums":
        return DENSE.softplus_sum(query, keys, scale, bias, rows.query_ids, rows.key_ids), empty, empty
    two_way = terms.two_way and rows.keys is not None
    of_rows, of_columns = DENSE.logsumexp(query, keys, scale, rows.query_ids, rows.key_ids, two_way)
    pairs = (query * keys).sum(-1) * scale if terms.paired else empty
    return of_rows, empty if of_columns is None else of_columns, pairs
