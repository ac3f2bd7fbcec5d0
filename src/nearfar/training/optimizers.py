"""Optimisers, what they decay, and the rate at each step."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from nearfar.methods import Method
from nearfar.nn.shard import global_norm
from nearfar.training.config import OptimizerConfig

DEFAULT_LR = {"sgd": 0.06, "adamw": 1e-3, "lars": 0.3}
DEFAULT_DECAY = {"sgd": 5e-4, "adamw": 0.05, "lars": 1e-6}


def make_optimiser(method: Method, config: OptimizerConfig, batch_size: int) -> torch.optim.Optimizer:
    """The optimizer over the method's parameter groups, its learning rate scaled by batch / 256."""
    lr = (DEFAULT_LR[config.name] if config.lr is None else config.lr) * batch_size / 256
    decay = DEFAULT_DECAY[config.name] if config.weight_decay is None else config.weight_decay
    groups = method.parameter_groups(decay)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=config.momentum)
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=lr)
    return LARS(groups, lr=lr, momentum=config.momentum)


def rate_factor(step: int, total: int, config: OptimizerConfig) -> float:
    """Linear warm-up to 1, then a cosine down to `final`.

    >>> config = OptimizerConfig(warmup=0.1)
    >>> [round(rate_factor(step, 100, config), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    warmup = round(config.warmup_ratio * total)
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, total - warmup)
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * (1 + math.cos(math.pi * progress)) / 2


class LARS(torch.optim.Optimizer):
    """SGD with momentum whose rate is, for each weight matrix, scaled by |w| / |gradient|: for large batches.

    Reference: You et al. 2017, algorithm 1, https://arxiv.org/abs/1708.03888
    """

    def __init__(
        self, params: Iterable[Any], *, lr: float, momentum: float = 0.9, trust: float = 1e-3, weight_decay: float = 0.0
    ) -> None:
        super().__init__(
            params, {"lr": lr, "momentum": momentum, "trust": trust, "weight_decay": weight_decay, "adapt": True}
        )

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
        velocity = state["momentum"].mul_(group["momentum"]).add_(update, alpha=group["lr"])
        weight.sub_(velocity)
