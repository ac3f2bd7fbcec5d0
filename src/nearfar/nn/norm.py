"""BatchNorm over groups of the batch, as if each were on its own device, and over the rows of all processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.losses.arguments import accumulation_dtype
from nearfar.nn.shard import Shard, all_reduce_sum, current_shard

# The group of each row of this process, and how many groups there are: set by `forward_in_groups` on a shard.
_GROUPS: ContextVar[tuple[Tensor, int] | None] = ContextVar("nearfar_groups", default=None)


def forward_in_groups(network: nn.Module, x: Tensor, groups: int, order: Tensor | None = None) -> Tensor:
    """`network(x)` on each of `groups` parts of the batch (B, ...), so that BatchNorm statistics are per group.

    Split BatchNorm for any network. The running statistics are updated by every group, with a momentum that makes all
    groups together count as one batch.

    Args:
        groups: consecutive parts of the batch; of the global batch, if several processes share it.
        order: (B,) the order in which rows are divided into groups; None: as they are. The result is in the order of x.

    Reference: He et al. 2020, section 3.3 (shuffling BN), https://arxiv.org/abs/1911.05722
    """
    shard = current_shard()
    if groups < 2:
        y: Tensor = network(x)
        return y
    with count_as_one_batch(network, groups):
        if shard is not None:
            return _synced_groups(network, x, groups, order, shard)
        if order is None:
            return torch.cat([network(part) for part in x.tensor_split(groups)])
        return torch.cat([network(part) for part in x[order].tensor_split(groups)])[order.argsort()]


def fix_statistics(network: nn.Module) -> None:
    """From now on BatchNorm normalizes by its running statistics in training, too, and does not change them.

    Copies of the network, such as a momentum network, do the same; its state dict stays as it was.
    """
    for norm in network.modules():
        if isinstance(norm, _BatchNorm) and norm.running_mean is not None:
            norm.register_forward_pre_hook(_leave_training)


def _leave_training(norm: nn.Module, _: Any) -> None:
    """Before each forward pass, since `train()` of the network would undo it. Of the norm alone, not of its parts."""
    norm.training = False


@contextmanager
def count_as_one_batch(network: nn.Module, passes: int) -> Iterator[None]:
    """Within this context, `passes` forward passes update BatchNorm's running statistics as much as one."""
    rates = {m: m.momentum for m in network.modules() if isinstance(m, _BatchNorm) and m.momentum is not None}
    try:
        for norm, rate in rates.items():
            norm.momentum = 1 - (1 - rate) ** (1 / passes)
        yield
    finally:
        for norm, rate in rates.items():
            norm.momentum = rate


def _synced_groups(network: nn.Module, x: Tensor, groups: int, order: Tensor | None, shard: Shard) -> Tensor:
    """One pass: rows stay on their process, and are normalized by the statistics of their group."""
    sizes = [len(part) for part in torch.arange(shard.total).tensor_split(groups)]
    group = torch.arange(groups, device=x.device).repeat_interleave(torch.tensor(sizes, device=x.device))  # (total,)
    if order is not None:
        group = group[order.argsort()]
    token = _GROUPS.set((shard.select(group), groups))
    try:
        y: Tensor = network(x)
    finally:
        _GROUPS.reset(token)
    for norm in network.modules():
        if isinstance(norm, _BatchNorm) and norm.training and norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(groups - 1)  # the forward pass counted one
    return y


def synced_batch_norm(
    shard: Shard,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """`F.batch_norm` in training over the rows of all processes, or over groups of them within `forward_in_groups`.

    Value and gradient are those of one process with all rows. Shards may differ in size, and may be empty.

    Args:
        x: (b, C, ...), the rows of this process.
    """
    found = _GROUPS.get()
    group, many = (torch.zeros(len(x), dtype=torch.long, device=x.device), 1) if found is None else found
    if len(group) != len(x):
        raise ValueError(f"x has {len(x)} rows, expected {len(group)}, one for each row of the batch")
    y, mean, var = _SyncedBatchNorm.apply(x, weight, bias, group, many, eps, shard)  # type: ignore[no-untyped-call]
    if running_mean is not None and running_var is not None and momentum:
        with torch.no_grad():
            for i in range(many):
                running_mean.lerp_(mean[i].to(running_mean), momentum)
                running_var.lerp_(var[i].to(running_var), momentum)
    normalized: Tensor = y
    return normalized


class _SyncedBatchNorm(torch.autograd.Function):
    """With G groups, statistics are (G, C), and each row is normalized by those of its group.

    Means and squared deviations of the processes are combined by the formula of Chan et al. 1983: one collective
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
        shard: Shard,
    ) -> tuple[Tensor, Tensor, Tensor]:
        kind, channels = accumulation_dtype(x), x.shape[1]
        wide = x.to(kind)
        count = torch.bincount(group, minlength=many).to(kind).mul_(x.shape[2:].numel())[:, None]  # (G, 1)
        mean = _sum_by_group(wide, group, many) / count.clamp(min=1)  # (G, C)
        squares = _sum_by_group((wide - _to_rows(mean, group, x)).square_(), group, many)  # (G, C)
        sent = torch.cat([count, mean, squares], 1)[None]  # (1, G, 1 + 2C)
        every = Shard(shard.rank, (1,) * shard.world_size).gather(sent)  # (W, G, 1 + 2C)
        counts, means, all_squares = every.split([1, channels, channels], 2)
        n = counts.sum(0)  # (G, 1)
        if bool((n < 2).any()):
            raise ValueError(
                f"BatchNorm sees {int(n.min())} value per channel, expected at least 2; raise the batch size"
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
        slope, along = (_sum_by_group(x, group, ctx.many) for x in (g, g * normal))  # (G, C)
        for_weight = along.sum(0).to(weight.dtype) if weight is not None else None
        for_bias = slope.sum(0).to(grad.dtype if weight is None else weight.dtype) if ctx.has_bias else None
        if not ctx.needs_input_grad[0]:
            return None, for_weight, for_bias, None, None, None, None
        slope, along = all_reduce_sum(torch.stack([slope, along])) / n  # (G, C)
        factor = inverse if weight is None else inverse * weight.to(inverse)
        for_x = g - _to_rows(slope, group, g) - normal * _to_rows(along, group, g)
        return for_x.mul_(_to_rows(factor, group, g)).to(grad.dtype), for_weight, for_bias, None, None, None, None


def _to_rows(statistics: Tensor, group: Tensor, like: Tensor) -> Tensor:
    """The statistics (G, C) of each row's group, to broadcast with rows (b, C, ...)."""
    of_row = statistics if len(statistics) == 1 else statistics[group]
    return of_row.view(*of_row.shape, *[1] * (like.ndim - 2))


def _sum_by_group(x: Tensor, group: Tensor, many: int) -> Tensor:
    """(b, C, ...) to (G, C), summed over the rows of each group."""
    rows = x.flatten(2).sum(2) if x.ndim > 2 else x  # (b, C)
    if many == 1:
        return rows.sum(0, keepdim=True)
    return rows.new_zeros(many, rows.shape[1]).index_add_(0, group, rows)
