"""Small runs, and stopping them."""

import itertools
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from nearfar.config import TrainConfig
from nearfar.report.samples import SAMPLES, ReportSamples
from nearfar.training.callbacks import TrainingMonitor
from nearfar.training.config import OptimizerConfig
from nearfar.training.run import Run

QUIET = Console(quiet=True)


def config(method: str, **settings: Any) -> TrainConfig:
    """Two epochs of five steps on small pictures, or what `settings` say."""
    options = {
        "moco": {"queue_size": 96},
        "byol": {"hidden": 64, "dim": 32},
        "instdisc": {"noise": 32},
    }.get(method, {})
    given = {
        "data": "glyphs:100",
        "method": method,
        "backbone": "micro",
        "image_size": 16,
        "epochs": 2,
        "batch_size": 16,
        "options": options,
        "checkpoint_every": 1,
        "health_every": 3,
        "optimizer": OptimizerConfig(name={"byol": "lars", "simclr": "muon"}.get(method, "sgd")),
    }
    return TrainConfig(**(given | settings))


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: x.clone() for name, x in run.setup.method.state_dict().items()}


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Ctrl-C were pressed during that step."""
    count = itertools.count(1)
    original = TrainingMonitor.on_train_batch_end

    def pressed(self: TrainingMonitor, *arguments: object) -> None:
        self.stop_signal = signal.SIGINT if next(count) >= steps else 0
        original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainingMonitor, "on_train_batch_end", pressed)


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text()


def shown(folder: Path, words: str) -> ReportSamples:
    """The samples of a run, which its page shows, with these words in it."""
    samples, page = ReportSamples.load(folder / SAMPLES), page_of(folder)
    assert 'id="map-canvas"' in page and "Hardest negatives" in page and "could not be read" not in page
    assert words in page
    return samples
