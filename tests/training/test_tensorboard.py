"""What --tensorboard writes is what metrics.jsonl holds, and without the package one line says what to install."""

import importlib.util
import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts
from tests.training.runs import QUIET, config, stop_after


def written(folder: Path, name: str) -> dict[int, float]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {event.step: event.value for event in events.Scalars(name)}


def logged(folder: Path, name: str) -> dict[int, float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line[name] for line in lines}


def test_the_events_are_the_metrics_and_a_resumed_run_goes_on_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    settings = config("simclr", tensorboard=True, health_every=1, checkpoint_every=3)
    with monkeypatch.context() as patch:
        stop_after(7, patch)
        with pytest.raises(TrainingStopped):
            Run(settings, tmp_path, resume=False, console=QUIET).execute()
    assert sorted(written(tmp_path, "loss")) == [1, 2, 3, 4, 5, 6, 7]
    (tmp_path / "checkpoints" / "step-000000007.pt").unlink()  # as after a kill: back to step 6
    Run(settings, tmp_path, resume=True, console=QUIET).execute()
    for name in ("loss", "lr", "effective_rank"):
        assert written(tmp_path, name) == pytest.approx(logged(tmp_path, name), rel=1e-5)
    assert sorted(written(tmp_path, "loss")) == list(range(1, 11))


def test_without_the_package_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=facts("'nearfar[tensorboard]'")):
        Run(config("simclr", tensorboard=True), tmp_path, resume=False, console=QUIET)
