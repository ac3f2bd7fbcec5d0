"""Losses of two views of a small batch: from the rows as they come to one number for each row, in one function.

There the number of calls takes the time. So normalizing, the matrix and the sums share a function of autograd, whose
gradient is written out. Larger batches, accelerators, torch.compile and torch.func take the sums of the engine.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.losses.arguments import Reduction, as_scalar, check_positive, l2_normalize, reduce_loss, upcast_half
from nearfar.losses.engine.autograd import Scalar
from nearfar.losses.engine.backends import current_backend, current_engine
from nearfar.losses.engine.log_sums import exp_limit
from nearfar.losses.engine.precision import no_autocast, product
from nearfar.losses.engine.tiles import current_tile

Compared = Literal["stacked", "one way", "both ways"]  # all views with each other, the first with the second, or both
_FEW_STACKED, _FEW_PAIRS, _FEW_SIGMOID = 1 << 18, 1 << 18, 1 << 18  # entries; measured by benchmarks/small_batches.py
_NOTHING = {dtype: torch.zeros(1, dtype=dtype) for dtype in (torch.float32, torch.float64)}


class _How(NamedTuple):
    compared: Compared
    normalize: bool
    soft: bool  # softplus of the log-odds
    mean: bool  # over rows
    factor: float  # 1 / temperature


def small_loss(
    x: Tensor,
    y: Tensor,
    temperature: Scalar,
    ids: Tensor | None,
    compared: Compared,
    reduction: Reduction,
    *,
    normalize: bool = True,
    soft: bool = True,
) -> Tensor | None:
    """What `row_losses.py` has: of (2B,) rows of stacked views, else of (B,); None where the engine is the way."""
    entries = x.shape[0] ** 2 * (4 if compared == "stacked" else 1)
    if not _is_small(x, y, entries, _FEW_STACKED if compared == "stacked" else _FEW_PAIRS):
        return None
    if not _has_negatives(x, ids):
        return None
    check_positive("temperature", temperature)
    learned = temperature if isinstance(temperature, Tensor) else None
    factor = 1 / _number(temperature)
    x, y = upcast_half(x), upcast_half(y)
    if factor > torch.finfo(x.dtype).max:
        return None  # refused there
    mask = None if ids is None else ids[:, None] == ids
    mean = reduction == "mean"
    found: Tensor = _RowLosses.apply(x, y, learned, mask, _How(compared, normalize, soft, mean, factor))  # type: ignore[no-untyped-call]
    return found if mean else reduce_loss(found, reduction)


def small_sigmoid_rows(x: Tensor, y: Tensor, scale: Scalar, bias: Scalar, ids: Tensor | None) -> Tensor | None:
    """(B,), SigLIP's loss of each row of normalized x and y; None where the engine is the way."""
    if not _is_small(x, y, x.shape[0] ** 2, _FEW_SIGMOID):
        return None
    x, y = upcast_half(x), upcast_half(y)
    mask = None if ids is None else ids[:, None] == ids
    learned = [as_scalar(v, x) if isinstance(v, Tensor) else None for v in (scale, bias)]
    numbers = _number(scale), _number(bias)
    found: Tensor = _SigmoidRows.apply(x, y, *learned, mask, *numbers)  # type: ignore[no-untyped-call]
    return found


def _is_small(x: Tensor, y: Tensor, entries: int, few: int) -> bool:
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False  # first: a size that is looked at while tracing becomes a condition on the batch
    if entries > few or x.device.type != "cpu" or {type(x), type(y)} - {Tensor, torch.nn.Parameter}:
        return False
    return current_engine() == ("auto", "exact") and current_backend() is None and current_tile() is None


def _number(value: Scalar) -> float:
    return float(value.detach() if isinstance(value, Tensor) else value)


def _has_negatives(x: Tensor, ids: Tensor | None) -> bool:
    """Whether every row has one: the gradient of an empty sum needs care."""
    if ids is None:
        return x.shape[0] > 1
    return bool((ids != ids[0]).any())


class _RowLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, learned: Tensor | None, mask: Tensor | None, how: _How) -> Tensor:
        count, stacked = len(x), how.compared == "stacked"
        z, norm = _stacked_rows(x, y, how.normalize)
        query, keys = (z, z) if stacked else (z[:count], z[count:])
        with no_autocast(z):
            s = _scaled_product(query, keys, how.factor)
        positive = _take_positive(s, mask, stacked)
        bounded = how.normalize and abs(how.factor) < exp_limit(z.dtype)
        dims = (1, 0) if how.compared == "both ways" else (1,)
        if bounded:
            s.exp_()
            totals = [s.sum(dim) for dim in dims]
            odds = [total.log() for total in totals]
        else:
            totals = [s.logsumexp(dim) for dim in dims]
            odds = [total.clone() for total in totals]
        for each in odds:
            (each.view(2, count) if stacked else each).sub_(positive)
        ctx.how, ctx.bounded = how, bounded
        ctx.save_for_backward(x, y, learned, mask, z, norm, s, *totals, *odds)
        return _joined(odds, how)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, learned, mask, z, norm, s, *rest = ctx.saved_tensors
        how, stacked = ctx.how, ctx.how.compared == "stacked"
        if torch.is_grad_enabled():  # under create_graph: as a function of the rows
            loss = _plain_row_losses(x, y, how.factor if learned is None else 1 / learned, mask, how)
            return *_plain_gradients((x, y, learned), loss, grad, ctx.needs_input_grad), None, None
        totals, odds = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        if how.mean or len(odds) == 2:
            grad = grad / (len(odds) * len(odds[0]) if how.mean else 2)
        slopes = [each.sigmoid().mul_(grad) for each in odds] if how.soft else [grad.expand(len(odds[0]))]
        if ctx.bounded:
            shares = [slope / total for slope, total in zip(slopes, totals, strict=True)]
            across = shares[0] if stacked else shares[1] if len(shares) == 2 else None
            own = shares[0][:, None]
            w = own * s if across is None else (own + across).mul_(s)
        else:
            w = _weights(s, totals[0][:, None], slopes[0][:, None])
            if stacked:
                w = w + w.T
            elif len(totals) == 2:
                w.add_(_weights(s, totals[1], slopes[1]))
        if stacked:
            of_positive = slopes[0].view(2, -1).sum(0)
            w.diagonal(len(x)).sub_(of_positive)
            w.diagonal(-len(x)).sub_(of_positive)
        else:
            w.diagonal().sub_(slopes[0] if len(slopes) == 1 else slopes[0].add_(slopes[1]))
        of_x, of_y, of_scale = _row_gradients(z, norm, w, how.factor, ctx.needs_input_grad, stacked=stacked)
        if of_scale is not None:  # of 1 / temperature
            of_scale = of_scale.mul_(-(how.factor**2)).reshape(learned.shape).to(learned.dtype)
        return of_x, of_y, of_scale, None, None


def _joined(odds: Sequence[Tensor], how: _How) -> Tensor:
    """The losses of log-odds: the mean of both ways, and if asked of all rows."""
    found = [F.softplus(each, threshold=40.0) for each in odds] if how.soft else odds
    rows = found[0] if len(found) == 1 else (found[0] + found[1]) / 2
    return rows.mean() if how.mean else rows


def _weights(s: Tensor, total: Tensor, slope: Tensor) -> Tensor:
    return s.sub(total).exp_().mul_(slope)


class _SigmoidRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        learned_scale: Tensor | None,
        learned_bias: Tensor | None,
        mask: Tensor | None,
        factor: float,
        offset: float,
    ) -> Tensor:
        z, norm = _stacked_rows(x, y, True)
        with no_autocast(z):
            s = _scaled_product(z[: len(x)], z[len(x) :], factor).add_(offset)
        positive = -s.diagonal()
        if mask is not None:
            s.masked_fill_(mask, -torch.inf)
        s.diagonal().copy_(positive)
        ctx.numbers = factor, offset
        ctx.save_for_backward(x, y, learned_scale, learned_bias, mask, z, norm, s)
        return F.softplus(s, threshold=40.0).sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, learned_scale, learned_bias, mask, z, norm, s = ctx.saved_tensors
        factor, offset = ctx.numbers
        if torch.is_grad_enabled():
            inputs = x, y, learned_scale, learned_bias
            scale, bias = factor if learned_scale is None else learned_scale, learned_bias
            output = _plain_sigmoid_rows(x, y, scale, offset if bias is None else bias, mask)
            return *_plain_gradients(inputs, output, grad, ctx.needs_input_grad), None, None, None
        w = s.sigmoid().mul_(grad[:, None])
        w.diagonal().neg_()
        of_bias = w.sum() if ctx.needs_input_grad[3] else None
        of_rows = _row_gradients(z, norm, w, factor, ctx.needs_input_grad, stacked=False)
        return *of_rows, of_bias, None, None, None


def _stacked_rows(x: Tensor, y: Tensor, normalize: bool) -> tuple[Tensor, Tensor | None]:
    """(2B, D) both views, normalized if asked, and their (2B, 1) norms: inf for rows of zeros, to get no gradient."""
    z = torch.cat([x, y])
    if not normalize:
        return z, None
    norm = torch.threshold_(torch.linalg.vector_norm(z, dim=1, keepdim=True), 0.0, torch.inf)
    return z.div_(norm), norm


def _scaled_product(query: Tensor, keys: Tensor, factor: float) -> Tensor:
    return torch.addmm(_NOTHING[query.dtype], query, keys.T, beta=0, alpha=factor)


def _take_positive(s: Tensor, mask: Tensor | None, stacked: bool) -> Tensor:
    """(B,), logits of the positives. These and all of equal ids become -inf: by mask (B, B), else on diagonals."""
    count = len(s) // 2 if stacked else len(s)
    diagonal = s.diagonal(count if stacked else 0)
    positive = diagonal.clone()
    if mask is not None:
        view = s.view(2, count, 2, count) if stacked else s
        view.masked_fill_(mask[None, :, None] if stacked else mask, -torch.inf)
        return positive
    diagonal.fill_(-torch.inf)
    if stacked:
        s.diagonal().fill_(-torch.inf)
        s.diagonal(-count).fill_(-torch.inf)
    return positive


def _row_gradients(
    z: Tensor, norm: Tensor | None, w: Tensor, factor: float, needs: tuple[bool, ...], *, stacked: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """In x, y and the scale, of the gradient W in the logits; W of stacked views counts both triangles."""
    count = len(z) // 2
    first = 0 if needs[0] or needs[2] else count
    last = 2 * count if needs[1] or needs[2] else count
    found = z.new_empty(last - first, z.shape[1])
    with no_autocast(z):
        if stacked:
            torch.mm(w[first:last], z, out=found)
        else:
            if first == 0:
                torch.mm(w, z[count:], out=found[:count])
            if last > count:
                torch.mm(w.T, z[:count], out=found[count - first :])
    rows = z if len(found) == len(z) else z[first:last]
    radial = (found * rows).sum(1, keepdim=True) if norm is not None or needs[2] else None
    of_scale = radial.sum() / 2 if needs[2] and radial is not None else None  # each pair came twice
    if norm is not None and radial is not None:
        found.addcmul_(rows, radial, value=-1).div_((norm if rows is z else norm[first:last]) / factor)
    else:
        found.mul_(factor)
    return found[:count] if needs[0] else None, found[count - first :] if needs[1] else None, of_scale


def _plain_row_losses(x: Tensor, y: Tensor, scale: Scalar, mask: Tensor | None, how: _How) -> Tensor:
    """The same by plain torch, which can be differentiated again."""
    if how.normalize:
        x, y = l2_normalize(x), l2_normalize(y)
    stacked = how.compared == "stacked"
    query, keys = (torch.cat([x, y]),) * 2 if stacked else (x, y)
    s = scale * product(query, keys)
    positive = s.diagonal(len(x) if stacked else 0)
    same = torch.eye(len(x), dtype=torch.bool) if mask is None else mask
    s = s.masked_fill(same.repeat(2, 2) if stacked else same, -torch.inf)
    dims = (1, 0) if how.compared == "both ways" else (1,)
    return _joined([s.logsumexp(dim) - (positive.repeat(2) if stacked else positive) for dim in dims], how)


def _plain_sigmoid_rows(x: Tensor, y: Tensor, scale: Scalar, bias: Scalar, mask: Tensor | None) -> Tensor:
    s = scale * product(l2_normalize(x), l2_normalize(y)) + bias
    positive = F.softplus(-s.diagonal(), threshold=40.0)
    same = torch.eye(len(x), dtype=torch.bool) if mask is None else mask
    return positive + F.softplus(s, threshold=40.0).masked_fill(same, 0.0).sum(1)


def _plain_gradients(
    inputs: tuple[Tensor | None, ...], output: Tensor, grad: Tensor, needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """Of a function that was computed again; differentiable."""
    wanted = [x for x, need in zip(inputs, needs, strict=False) if need and x is not None]
    found = iter(torch.autograd.grad(output, wanted, grad, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needs[: len(inputs)]]
