"""How the weights move. Needs no torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class OptimizerConfig:
    """How the weights move."""

    name: Literal["sgd", "adamw", "lars"] = "sgd"  # the optimiser
    lr: float | None = None  # at batch 256, scaled linearly with the batch; None: 0.06, 1e-3 or 0.3 by name
    weight_decay: float | None = None  # never on norms, biases and scalars; None: 5e-4, 0.05 or 1e-6 by name
    momentum: float = 0.9  # of SGD and LARS
    warmup: float = 0.05  # part of the run in which the rate rises linearly
    final: float = 0.0  # part of the rate left at the end of the cosine
    clip: float | None = None  # largest gradient norm
