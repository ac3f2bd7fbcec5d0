"""Where metrics are logged beside `metrics.jsonl`: loggers by name, or Lightning's own objects."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nearfar.config import TrainConfig
from nearfar.data.sample_ids import text_ids
from nearfar.training._lightning import lightning
from nearfar.training.attachments import logger_names

Logger = Any  # lightning.pytorch.loggers.Logger


class TrackioLogger(lightning.pytorch.loggers.logger.Logger):
    """Metrics to trackio, which Lightning has no logger for.

    Args:
        project: name of the project.
        name: of the run.
        config: settings of the run.
    """

    def __init__(self, project: str, name: str, config: dict[str, Any]) -> None:
        super().__init__()
        import trackio

        self._name, self._run = name, trackio.init(project=project, name=name, config=config)

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return ""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._run.log(metrics, step=step)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        return

    def finalize(self, status: str) -> None:
        self._run.finish()


def tensorboard(folder: Path, config: TrainConfig, done: int) -> Logger:
    # A resumed run drops what was logged after its checkpoint, as in metrics.jsonl.
    return lightning.pytorch.loggers.TensorBoardLogger(
        folder, name="", version="tensorboard", purge_step=done + 1 if done else None
    )


def wandb(folder: Path, config: TrainConfig, done: int) -> Logger:
    """A resumed run goes on in the same run of wandb, whose id is the folder's."""
    number = int(text_ids([str(folder.absolute())])[0])
    made = lightning.pytorch.loggers.WandbLogger(
        project="nearfar", name=folder.name, save_dir=folder, id=f"{number:016x}", resume="allow"
    )
    made.log_hyperparams(asdict(config))
    return made


def mlflow(folder: Path, config: TrainConfig, done: int) -> Logger:
    """To MLFLOW_TRACKING_URI if it is set, else into the run folder."""
    if not (place := os.environ.get("MLFLOW_TRACKING_URI")):
        place = f"file:{(folder / 'mlruns').absolute()}"
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions refuse files without it
    made = lightning.pytorch.loggers.MLFlowLogger(experiment_name="nearfar", run_name=folder.name, tracking_uri=place)
    made.log_hyperparams(asdict(config))
    return made


def trackio(folder: Path, config: TrainConfig, done: int) -> Logger:
    return TrackioLogger("nearfar", folder.name, asdict(config))


_OPEN: dict[str, Callable[[Path, TrainConfig, int], Logger]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "mlflow": mlflow,
    "trackio": trackio,
}


def open_loggers(config: TrainConfig, folder: Path, done: int, given: Sequence[Logger]) -> list[Logger]:
    """The loggers of a run: those that the configuration names, and those that were given."""
    return [*(_OPEN[name](folder, config, done) for name in logger_names(config)), *given]


def close_loggers(config: TrainConfig, loggers: Sequence[Logger]) -> None:
    """End what the configuration named, so that the next run of this process begins its own."""
    for logger in loggers[: len(logger_names(config))]:
        if hasattr(logger, "experiment") and hasattr(logger.experiment, "finish"):
            logger.experiment.finish()
