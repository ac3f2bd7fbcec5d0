"""Momentum networks: copies that follow their source by an exponential moving average (EMA)."""

import copy
import math
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.losses.arguments import check_at_least
from nearfar.nn.shard import global_norm, local

M = TypeVar("M", bound=nn.Module)


def frozen_copy(module: M) -> M:
    """A deep copy that shares no storage with `module` and takes no gradient; `module` is not changed.

    In training its BatchNorm normalizes by the batch, but only `ema_update` changes its running statistics.

    >>> source = nn.Linear(2, 2)
    >>> target = frozen_copy(source)
    >>> source.weight.requires_grad, target.weight.requires_grad
    (True, False)
    """
    target = copy.deepcopy(module).requires_grad_(False)
    for part in target.modules():
        if isinstance(part, _BatchNorm):
            part.momentum = 0.0
    return target


@torch.no_grad()
def ema_update(target: nn.Module, source: nn.Module, momentum: float) -> None:
    """`target = momentum · target + (1 - momentum) · source`, parameters and floating-point buffers alike.

    BatchNorm's running statistics are buffers, and are averaged at the same rate as the weights. Integer buffers (batch
    counters) are copied. A momentum of 0 copies everything. Of sharded weights (FSDP) each process updates its part.

    Args:
        target: of the same architecture as `source`, with its own storage; `frozen_copy` makes one.
        momentum: from 0 to 1; MoCo's is 0.999, BYOL's rises from 0.996 to 1.

    Reference: He et al. 2020, eq. 2, https://arxiv.org/abs/1911.05722; Grill et al. 2020, eq. 1,
    https://arxiv.org/abs/2006.07733
    """
    check_at_least("momentum", momentum, 0.0)
    if momentum > 1:
        raise ValueError(f"momentum is {momentum:g}, expected a number from 0 to 1")
    pairs = _pairs(target, source)
    floating = [(t, s) for t, s in pairs if t.is_floating_point()]
    if floating:
        torch._foreach_lerp_([t for t, _ in floating], [s.to(t) for t, s in floating], 1 - momentum)
    for t, s in pairs:
        if not t.is_floating_point():
            t.copy_(s)


def cosine_momentum(start: float, progress: float) -> float:
    """From `start` at progress 0 to 1 at progress 1, along half a cosine.

    Reference: Grill et al. 2020, section 3.1, https://arxiv.org/abs/2006.07733

    >>> cosine_momentum(0.996, 0.0), cosine_momentum(0.996, 0.5), cosine_momentum(0.996, 1.0)
    (0.996, 0.998, 1.0)
    """
    progress = min(max(progress, 0.0), 1.0)
    return 1 - (1 - start) * (math.cos(math.pi * progress) + 1) / 2


@torch.no_grad()
def ema_distance(target: nn.Module, source: nn.Module) -> Tensor:
    """A scalar: the distance of the target's parameters from the source's, relative to the norm of the source's."""
    sources = list(source.parameters())
    apart = [t - s for t, s in zip(target.parameters(), sources, strict=True)]
    return global_norm(apart) / global_norm(sources).clamp(min=1e-12)


def _pairs(target: nn.Module, source: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Each parameter and buffer of the target with that of the same name in the source."""
    targets, sources = dict(_state(target)), dict(_state(source))
    if targets.keys() != sources.keys():
        odd = sorted(targets.keys() ^ sources.keys())
        raise ValueError(f"target and source differ in {', '.join(odd[:3])}, expected the same architecture")
    places = {s.data_ptr(): name for name, s in sources.items() if s.numel() and not s.is_meta}
    for name, t in targets.items():
        if t.numel() and t.data_ptr() in places:
            raise ValueError(
                f"target shares {name} with {places[t.data_ptr()]} of source: it is the same network, not a momentum "
                "copy; make the target with frozen_copy(source)"
            )
    return [(t, sources[name]) for name, t in targets.items()]


def _state(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from ((name, local(p)) for name, p in module.named_parameters())
    yield from module.named_buffers()
