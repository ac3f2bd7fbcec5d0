"""Batch-norm over groups of the batch, so that one device behaves as several do, and over the rows of all processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.losses.arguments import sum_type
from nearfar.nn.shard import Share, current, rows_of_all, sum_of_all

# The group of each row of this process, and how many there are: of `in_groups`, where processes share a batch.
_GROUPS: ContextVar[tuple[Tensor, int] | None] = ContextVar("nearfar_groups", default=None)


class _SplitBatchNorm(_BatchNorm):
    """In training, each of `splits` consecutive groups of the batch is normalised by its own statistics.

    The running statistics, single, move once per batch by the mean over the groups. In evaluation it is plain
    batch-norm. A batch of which the groups would have fewer than 2 samples is split into fewer.

    Reference: He et al. 2020, section 3.3 (shuffling batch-norm), https://arxiv.org/abs/1911.05722
    """

    def __init__(
        self, num_features: int, splits: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True
    ) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum, affine=affine)
        if splits < 1:
            raise ValueError(f"splits is {splits}, expected at least 1")
        self.splits = splits

    def forward(self, x: Tensor) -> Tensor:
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        splits = min(self.splits, len(x) // 2)
        if not self.training or splits < 2:
            return super().forward(x)
        # Groups may differ by one sample; each is a batch of its own.
        whole = len(x) % splits == 0
        return self._grouped(x, splits) if whole else self._one_by_one(x, splits)

    def _rate(self) -> float:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        return 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def _grouped(self, x: Tensor, splits: int) -> Tensor:
        """One call: the groups as further channels. (B, C, ...) as (B/splits, splits·C, ...)."""
        channels = x.shape[1]
        group = x.unflatten(0, (splits, -1)).transpose(0, 1).flatten(1, 2)  # (B/splits, splits·C, ...)
        mean, var = (s.repeat(splits) for s in self._running())
        y: Tensor = F.batch_norm(group, mean, var, None, None, True, self._rate(), self.eps)
        self._keep(mean.view(splits, channels).mean(0), var.view(splits, channels).mean(0))
        y = y.unflatten(1, (splits, channels)).transpose(0, 1).flatten(0, 1)  # (B, C, ...)
        if self.affine:
            shape = (1, channels, *[1] * (x.ndim - 2))
            y = y * self.weight.to(y).view(shape) + self.bias.to(y).view(shape)
        return y

    def _one_by_one(self, x: Tensor, splits: int) -> Tensor:
        rate, parts, means, variances = self._rate(), [], [], []
        for part in x.tensor_split(splits):
            mean, var = (s.clone() for s in self._running())
            parts.append(F.batch_norm(part, mean, var, self.weight, self.bias, True, rate, self.eps))
            means.append(mean)
            variances.append(var)
        self._keep(torch.stack(means).mean(0), torch.stack(variances).mean(0))
        return torch.cat(parts)

    def _running(self) -> tuple[Tensor, Tensor]:
        assert self.running_mean is not None and self.running_var is not None
        return self.running_mean, self.running_var

    @torch.no_grad()
    def _keep(self, mean: Tensor, var: Tensor) -> None:
        for running, new in zip(self._running(), (mean, var), strict=True):
            running.copy_(new)

    def extra_repr(self) -> str:
        return f"{self.num_features}, splits={self.splits}"


class SplitBatchNorm1d(_SplitBatchNorm):
    """Split batch-norm of x (B, C) or (B, C, L)."""

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002, torch's name
        if input.ndim not in (2, 3):
            raise ValueError(f"input has shape {tuple(input.shape)}, expected (B, C) or (B, C, L)")


class SplitBatchNorm2d(_SplitBatchNorm):
    """Split batch-norm of x (B, C, H, W)."""

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        if input.ndim != 4:
            raise ValueError(f"input has shape {tuple(input.shape)}, expected (B, C, H, W)")


def in_groups(network: nn.Module, x: Tensor, groups: int, order: Tensor | None = None) -> Tensor:
    """`network(x)` of each of `groups` parts of the batch (B, ...), so that no batch-norm sees across them.

    What split batch-norm does, for any network and without a change to it: the running statistics move with every
    group, each time by so much less that a batch counts as it would in one piece.

    Args:
        groups: consecutive parts of the batch; of the whole batch, where several processes share it.
        order: (B,) the rows in the order that is cut into parts; None: as they are. The result is in the order of x.
    """
    share = current()
    if groups < 2:
        whole: Tensor = network(x)
        return whole
    with counted_once(network, groups):
        if share is not None:
            return _groups_of_all(network, x, groups, order, share)
        if order is None:
            return torch.cat([network(part) for part in x.tensor_split(groups)])
        y = torch.cat([network(part) for part in x[order].tensor_split(groups)])
        return y[order.argsort()]


@contextmanager
def counted_once(network: nn.Module, passes: int) -> Iterator[None]:
    """Within it, so many forward passes move the running statistics of batch-norms by as much as one."""
    rates = {m: m.momentum for m in network.modules() if isinstance(m, _BatchNorm) and m.momentum is not None}
    try:
        for norm, rate in rates.items():
            norm.momentum = 1 - (1 - rate) ** (1 / passes)
        yield
    finally:
        for norm, rate in rates.items():
            norm.momentum = rate


def _groups_of_all(network: nn.Module, x: Tensor, groups: int, order: Tensor | None, share: Share) -> Tensor:
    """One pass: a row keeps its place and its process, and its statistics are those of its group, wherever that is."""
    sizes = [len(part) for part in torch.arange(share.total).tensor_split(groups)]
    group = torch.arange(groups, device=x.device).repeat_interleave(torch.tensor(sizes, device=x.device))  # (total,)
    if order is not None:
        group = group[order.argsort()]
    token = _GROUPS.set((share.own(group), groups))
    try:
        y: Tensor = network(x)
    finally:
        _GROUPS.reset(token)
    for norm in network.modules():
        if isinstance(norm, _BatchNorm) and norm.training and norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(groups - 1)  # one is counted already
    return y


def batch_norm_of_all(
    share: Share,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """`F.batch_norm` in training, of the rows that all processes have, or of groups of them within `in_groups`.

    Value and gradient are those of one process that has all rows; sizes may differ, and a process may have none.

    Args:
        x: (b, C, ...), the rows of this process.
    """
    found = _GROUPS.get()
    group, many = (torch.zeros(len(x), dtype=torch.long, device=x.device), 1) if found is None else found
    if len(group) != len(x):
        raise ValueError(f"x has {len(x)} rows, expected {len(group)}, of which the groups are known")
    y, mean, var = _BatchNormOfAll.apply(x, weight, bias, group, many, eps, share)  # type: ignore[no-untyped-call]
    if running_mean is not None and running_var is not None and momentum:
        with torch.no_grad():
            for i in range(many):
                running_mean.lerp_(mean[i].to(running_mean), momentum)
                running_var.lerp_(var[i].to(running_var), momentum)
    normalised: Tensor = y
    return normalised


class _BatchNormOfAll(torch.autograd.Function):
    """With G groups, statistics are (G, C), and each row is normalised by those of its group.

    Means and squared deviations of the processes are put together by the formula of Chan et al. 1983: one exchange
    forward, one backward.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        group: Tensor,
        many: int,
        eps: float,
        share: Share,
    ) -> tuple[Tensor, Tensor, Tensor]:
        kind, channels = sum_type(x), x.shape[1]
        wide = x.to(kind)
        count = torch.bincount(group, minlength=many).to(kind).mul_(x.shape[2:].numel())[:, None]  # (G, 1)
        mean = _by_group(wide, group, many) / count.clamp(min=1)  # (G, C)
        squares = _by_group((wide - _to_rows(mean, group, x)).square_(), group, many)  # (G, C)
        sent = torch.cat([count, mean, squares], 1)[None]  # (1, G, 1 + 2C)
        every = rows_of_all(sent, Share(share.rank, (1,) * share.world))  # (W, G, 1 + 2C)
        counts, means, all_squares = every.split([1, channels, channels], 2)
        n = counts.sum(0)  # (G, 1)
        if bool((n < 2).any()):
            raise ValueError(
                f"batch-norm sees {int(n.min())} value a channel over all processes, expected at least 2; raise the "
                "batch size"
            )
        mean = (counts * means).sum(0) / n
        squares = all_squares.sum(0) + (counts * (means - mean).square()).sum(0)
        inverse = (squares / n + eps).rsqrt()  # (G, C)
        normal = (wide - _to_rows(mean, group, x)).mul_(_to_rows(inverse, group, x))
        shape = (1, channels, *[1] * (x.ndim - 2))
        y = normal.clone() if weight is None else normal * weight.to(kind).view(shape)
        y = y if bias is None else y.add_(bias.to(kind).view(shape))
        ctx.save_for_backward(normal, weight, inverse, n, group)
        ctx.many, ctx.has_bias = many, bias is not None
        ctx.mark_non_differentiable(mean, var := squares / (n - 1))
        return y.to(x.dtype), mean, var

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        normal, weight, inverse, n, group = ctx.saved_tensors
        g = grad.to(normal.dtype)
        slope, along = (_by_group(x, group, ctx.many) for x in (g, g * normal))  # (G, C)
        for_weight = along.sum(0).to(weight.dtype) if weight is not None else None
        for_bias = slope.sum(0).to(grad.dtype if weight is None else weight.dtype) if ctx.has_bias else None
        if not ctx.needs_input_grad[0]:
            return None, for_weight, for_bias, None, None, None, None
        slope, along = sum_of_all(torch.stack([slope, along])) / n  # (G, C)
        factor = inverse if weight is None else inverse * weight.to(inverse)
        for_x = g - _to_rows(slope, group, g) - normal * _to_rows(along, group, g)
        return for_x.mul_(_to_rows(factor, group, g)).to(grad.dtype), for_weight, for_bias, None, None, None, None


def _to_rows(statistics: Tensor, group: Tensor, like: Tensor) -> Tensor:
    """(G, C) as what each row (b, C, ...) has of it, to broadcast."""
    of_row = statistics if len(statistics) == 1 else statistics[group]
    return of_row.view(*of_row.shape, *[1] * (like.ndim - 2))


def _by_group(x: Tensor, group: Tensor, many: int) -> Tensor:
    """(b, C, ...) to the sums (G, C) over the rows of each group."""
    rows = x.flatten(2).sum(2) if x.ndim > 2 else x  # (b, C)
    if many == 1:
        return rows.sum(0, keepdim=True)
    return rows.new_zeros(many, rows.shape[1]).index_add_(0, group, rows)


def split_batch_norm(module: nn.Module, splits: int) -> nn.Module:
    """`module` with each BatchNorm1d and 2d replaced, in place, by a split one that takes over its weights and state.

    Names and shapes in the state dict stay as they are.
    """
    for kind, split in ((nn.BatchNorm1d, SplitBatchNorm1d), (nn.BatchNorm2d, SplitBatchNorm2d)):
        if type(module) is kind:
            return _converted(module, split, splits)
    for name, child in module.named_children():
        new = split_batch_norm(child, splits)
        if new is not child:
            setattr(module, name, new)
    return module


def _converted(norm: _BatchNorm, split: type[_SplitBatchNorm], splits: int) -> nn.Module:
    if not norm.track_running_stats:
        return norm
    new = split(norm.num_features, splits, norm.eps, norm.momentum, norm.affine)
    new.weight, new.bias = norm.weight, norm.bias
    new.running_mean, new.running_var = norm.running_mean, norm.running_var
    new.num_batches_tracked = norm.num_batches_tracked
    return new.train(norm.training)
