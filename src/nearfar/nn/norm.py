"""Batch-norm over groups of the batch: one device behaves as several do, and cannot cheat by batch statistics."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


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


def in_groups(network: nn.Module, x: Tensor, groups: int) -> Tensor:
    """`network(x)` of each of `groups` consecutive parts of the batch (B, ...), so that no batch-norm sees across.

    What split batch-norm does, for any network and without a change to it: the running statistics move with every
    group, each time by so much less that a batch counts as it would in one piece.
    """
    if groups < 2:
        whole: Tensor = network(x)
        return whole
    with counted_once(network, groups):
        return torch.cat([network(part) for part in x.tensor_split(groups)])


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
