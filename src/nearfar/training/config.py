"""How the weights move. Needs no torch."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class OptimizerConfig:
    """How the weights move."""

    name: Literal["sgd", "adamw", "lars"] = "sgd"  # the optimiser
    lr: float | None = None  # at batch 256; None: 0.06, 1e-3 or 0.3 by name
    scale_lr: Literal["linear", "sqrt", "none"] = "linear"  # factor of the learning rate: batch / 256, its root, or 1
    weight_decay: float | None = None  # on matrices and kernels; None: 5e-4, 0.05 or 1e-6 by name
    decay_all: bool = False  # weight decay on norms, biases and scalars, too
    momentum: float = 0.9  # of SGD and LARS
    lr_in_momentum: bool = True  # of LARS: momentum sums lr times gradient (SimCLR); false: gradients alone (BYOL)
    beta2: float = 0.999  # of AdamW: decay of the squared gradients
    eps: float = 1e-8  # of AdamW: added to the root of the squared gradients
    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"  # of the learning rate after the warm-up
    milestones: list[float] = field(
        default_factory=lambda: [0.6, 0.8]
    )  # of "step": parts of the run; each divides by 10
    per_epoch: bool = False  # the schedule moves once an epoch; false: at every step
    warmup: float = 0.05  # part of the run in which the rate rises linearly
    warmup_epochs: float | None = None  # the same in epochs, in place of the part of the run
    warmup_from_zero: bool = False  # the first step has a rate of 0; false: one part of the warm-up's steps
    final: float = 0.0  # part of the rate left at the end of the cosine
    clip: float | None = None  # largest gradient norm

    def __post_init__(self) -> None:
        if any(not 0 < part < 1 for part in self.milestones) or self.milestones != sorted(self.milestones):
            raise ValueError(
                f"optimizer.milestones is {self.milestones}, expected rising parts of the run, from 0 to 1"
            )
        if self.warmup_epochs is not None and self.warmup_epochs < 0:
            raise ValueError(f"optimizer.warmup_epochs is {self.warmup_epochs}, expected at least 0")
        if not 0 < self.beta2 < 1:
            raise ValueError(f"optimizer.beta2 is {self.beta2}, expected above 0 and below 1")
        if not self.eps > 0:
            raise ValueError(f"optimizer.eps is {self.eps}, expected above 0")
