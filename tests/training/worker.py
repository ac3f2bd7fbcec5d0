"""A run as a program of its own: `python -m tests.training.worker ...`."""

import itertools
import json
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

import nearfar.report.page
from nearfar.config import TrainConfig
from nearfar.evaluation.results import Results
from nearfar.training.callbacks import TrainingMonitor
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from nearfar.training.train import resume_run, run


def main(folder: str, settings: str, stop_after: str = "0") -> int:
    """Train alone: what comes after is the same with one process or several.

    Args:
        settings: of the configuration, as JSON; of a run that is resumed, what is changed.
        stop_after: steps after which the last process alone is asked to stop.
    """
    Run._evaluate = lambda self: Results()  # type: ignore[method-assign]
    nearfar.report.page.write_report = lambda folder: folder  # type: ignore[assignment, misc]
    if int(stop_after):
        _stop_last(int(stop_after))
    given: dict[str, Any] = json.loads(settings)
    place = Path(folder)
    try:
        if (place / "checkpoints").exists():
            resume_run(place, console=Console(), **given)
        else:
            run(TrainConfig(**given), place, console=Console())
    except TrainingStopped:
        assert int(stop_after)
    return 0


def _stop_last(steps: int) -> None:
    count, original = itertools.count(1), TrainingMonitor.on_train_batch_end

    def asked(self: TrainingMonitor, *arguments: Any) -> None:
        if next(count) >= steps and arguments[0].global_rank == arguments[0].world_size - 1:
            self.stop_signal = signal.SIGINT
        original(self, *arguments)

    TrainingMonitor.on_train_batch_end = asked  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
