"""Training: the only package that imports Lightning."""

from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names

if TYPE_CHECKING:
    from nearfar.training.config import OptimizerConfig
    from nearfar.training.errors import NotFiniteError, ProcessLostError
    from nearfar.training.optimizers import LARS
    from nearfar.training.setup import TrainingSetup
    from nearfar.training.signals import TrainingStopped
    from nearfar.training.train import resume_run

__all__ = [
    "LARS",
    "NotFiniteError",
    "OptimizerConfig",
    "ProcessLostError",
    "TrainingSetup",
    "TrainingStopped",
    "resume_run",
]
__getattr__ = lazy_names(
    __name__,
    {
        "LARS": "optimizers",
        "NotFiniteError": "errors",
        "OptimizerConfig": "config",
        "ProcessLostError": "errors",
        "TrainingSetup": "setup",
        "TrainingStopped": "signals",
        "resume_run": "train",
    },
)
