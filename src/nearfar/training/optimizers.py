"""Optimizers, what they decay, and the rate at each step."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from nearfar.methods import Method
from nearfar.nn.shard import global_norm
from nearfar.training.adaptation import adapted_groups
from nearfar.training.config import AdaptConfig, OptimizerConfig
from nearfar.training.muon import Muon

DEFAULT_LR = {"sgd": 0.06, "adamw": 1e-3, "lars": 0.3, "muon": 0.02}
DEFAULT_DECAY = {"sgd": 5e-4, "adamw": 0.05, "lars": 1e-6, "muon": 0.0}
DEFAULT_MOMENTUM = {"sgd": 0.9, "adamw": 0.9, "lars": 0.9, "muon": 0.95}


def make_optimizer(
    method: Method, config: OptimizerConfig, batch_size: int, adapt: AdaptConfig | None = None
) -> torch.optim.Optimizer:
    """The optimizer over the method's parameter groups, its learning rate scaled with the batch.

    A group may have `lr_scale`, which multiplies its learning rate, and `constant_lr`, which the schedule leaves alone.

    Args:
        adapt: how pretrained weights are adapted; None: as all others.
    """
    lr = DEFAULT_LR[config.name] if config.lr is None else config.lr
    scaling = config.scale_lr or ("none" if config.name == "muon" else "linear")  # steps of Muon have one size
    if scaling != "none":
        lr = lr * batch_size / 256 if scaling == "linear" else lr * math.sqrt(batch_size / 256)
    decay = DEFAULT_DECAY[config.name] if config.weight_decay is None else config.weight_decay
    groups = method.parameter_groups(decay)
    if adapt is not None:
        groups = adapted_groups(method.encoder, groups, adapt)
    for group in groups:
        if "lr_scale" in group:
            group["lr"] = lr * group["lr_scale"]
        if config.decay_all:
            group["weight_decay"] = decay
    momentum = DEFAULT_MOMENTUM[config.name] if config.momentum is None else config.momentum
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=momentum)
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, config.beta2), eps=config.eps)
    if config.name == "muon":
        return Muon(groups, lr=lr, momentum=momentum, betas=(0.9, config.beta2), eps=config.eps)
    return LARS(groups, lr=lr, momentum=momentum, lr_in_momentum=config.lr_in_momentum)


def set_rates(optimizer: torch.optim.Optimizer, factor: float, pretrained: float | None = None) -> None:
    """Set each group's learning rate to `factor` of its first one; those with `constant_lr` keep it.

    Args:
        pretrained: the factor of groups of pretrained weights; None: the same.
    """
    for group in optimizer.param_groups:
        own = pretrained if pretrained is not None and group.get("pretrained", False) else factor
        group["lr"] = group["initial_lr"] * (1.0 if group.get("constant_lr", False) else own)


def pretrained_factor(step: int, total: int, config: OptimizerConfig, adapt: AdaptConfig, epochs: float = 1) -> float:
    """The factor of pretrained weights: 0 while only new layers are trained, then the schedule over what is left.

    >>> config, adapt = OptimizerConfig(warmup_ratio=0.1), AdaptConfig(head_warmup=0.2)
    >>> [round(pretrained_factor(step, 100, config, adapt), 3) for step in (0, 19, 20, 27, 60, 99)]
    [0.0, 0.0, 0.125, 1.0, 0.587, 0.0]
    """
    waited = round(adapt.head_warmup * total)
    if step < waited:
        return 0.0
    return rate_factor(step - waited, total - waited, config, epochs * (total - waited) / total)


def rate_factor(step: int, total: int, config: OptimizerConfig, epochs: float = 1) -> float:
    """Linear warm-up to 1, then what the schedule says.

    Args:
        step: of the optimizer, from 0.
        total: steps of the run.
        epochs: of the run, for settings that count in epochs.

    >>> config = OptimizerConfig(warmup_ratio=0.1)
    >>> [round(rate_factor(step, 100, config), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    >>> [round(rate_factor(step, 100, OptimizerConfig(warmup_ratio=0.0, schedule="step")), 4) for step in (0, 60, 80)]
    [1.0, 0.1, 0.01]
    """
    warmup = round(config.warmup_ratio * total)
    if config.warmup_epochs is not None:
        warmup = min(total, round(config.warmup_epochs * total / epochs))
    if step < warmup:
        return step / warmup if config.warmup_from_zero else (step + 1) / warmup
    at = step * epochs // total * total / epochs if config.per_epoch else step
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "step":
        return 0.1 ** sum(at >= part * total - 1e-9 for part in config.milestones)
    progress = max(0.0, at - warmup) / max(1, total - warmup)
    left = 1 - progress if config.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * left


class LARS(torch.optim.Optimizer):
    """SGD with momentum whose rate is, for each weight matrix, scaled by |w| / |gradient|: for large batches.

    With g the gradient and its weight decay and t = trust · |w| / |g|, the velocity v moves the weights w by

        v = momentum · v + lr · t · g,  w = w - v        if `lr_in_momentum`: the paper and SimCLR,
        v = momentum · v + t · g,       w = w - lr · v   if not: BYOL, MoCo v3, Barlow Twins and VICReg.

    Both are the same while the learning rate does not change.

    Reference: You et al. 2017, algorithm 1, https://arxiv.org/abs/1708.03888
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        momentum: float = 0.9,
        trust: float = 1e-3,
        weight_decay: float = 0.0,
        lr_in_momentum: bool = True,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "trust": trust, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "lr_in_momentum": lr_in_momentum, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, group)
        return loss

    def _move(self, weight: Tensor, group: dict[str, Any]) -> None:
        update = weight.grad + group["weight_decay"] * weight
        if group["adapt"]:
            size, slope = global_norm([weight]), global_norm([update])
            update = update * torch.where((size > 0) & (slope > 0), group["trust"] * size / slope, 1.0)
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        inside = group.get("lr_in_momentum", True)  # absent from the checkpoints of earlier versions
        velocity = state["momentum"].mul_(group["momentum"]).add_(update, alpha=group["lr"] if inside else 1.0)
        weight.sub_(velocity, alpha=1.0 if inside else group["lr"])
