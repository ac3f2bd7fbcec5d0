"""How the weights move. Needs no torch."""

from dataclasses import dataclass
from typing import Literal

from nearfar.settings import check_settings, setting


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer and learning rate schedule."""

    name: Literal["sgd", "adamw", "lars"] = setting("sgd", "the optimizer")
    lr: float | None = setting(
        None,
        "peak learning rate at batch 256, scaled linearly with the batch; None: 0.06, 1e-3 or 0.3 by name",
        above=0,
    )
    weight_decay: float | None = setting(
        None, "never on norms, biases and scalars; None: 5e-4, 0.05 or 1e-6 by name", least=0
    )
    momentum: float = setting(0.9, "of SGD and LARS")
    warmup_ratio: float = setting(0.05, "fraction of the run in which the learning rate rises linearly", least=0)
    min_lr_ratio: float = setting(0.0, "final learning rate as a fraction of the peak", least=0)
    clip_norm: float | None = setting(None, "gradients are scaled down to this norm at most; None: not", above=0)

    def __post_init__(self) -> None:
        check_settings(self, "optimizer")
