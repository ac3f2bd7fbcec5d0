"""A run stopped anywhere and resumed ends in the same weights, bit for bit."""

import itertools
from pathlib import Path

import pytest
import torch
from rich.console import Console

from nearfar.config import OptimizerConfig, TrainConfig
from nearfar.train import checkpoint
from nearfar.train.run import Run
from nearfar.train.watch import Watch

QUIET = Console(quiet=True)


def config(method: str) -> TrainConfig:
    options = {
        "moco": {"queue_size": 96},
        "byol": {"hidden": 64, "dim": 32},
        "instdisc": {"noise": 32},
    }.get(method, {})
    return TrainConfig(
        data="glyphs:200",
        method=method,
        backbone="micro",
        epochs=2,
        batch_size=32,
        options=options,
        checkpoint_every=1,
        health_every=3,
        optimizer=OptimizerConfig(name="lars" if method == "byol" else "sgd"),
    )


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: x.clone() for name, x in run.method.state_dict().items()}


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Ctrl-C were pressed during that step."""
    count = itertools.count(1)
    original = Watch.on_train_batch_end

    def pressed(self: Watch, *arguments: object) -> None:
        self.stopped = next(count) >= steps
        original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Watch, "on_train_batch_end", pressed)


@pytest.fixture
def train_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "_evaluate", lambda self: None)


@pytest.mark.parametrize("method", ["simclr", "moco", "byol", "instdisc"])
def test_a_stopped_run_resumes_to_the_same_weights(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    whole = Run(config(method), tmp_path / "whole", resume=False, console=QUIET)
    whole.go()
    for steps in (1, 4, 7):  # within the first epoch, and within the second
        folder = tmp_path / f"stopped-{steps}"
        with monkeypatch.context() as patch:
            stop_after(steps, patch)
            stopped = Run(config(method), folder, resume=False, console=QUIET)
            assert stopped.go() is None
        resumed = Run(config(method), folder, resume=True, console=QUIET)
        resumed.go()
        for name, x in weights(whole).items():
            assert torch.equal(x, weights(resumed)[name]), (steps, name)


def test_a_broken_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        Run(config("simclr"), tmp_path, resume=False, console=QUIET).go()
    newest = checkpoint.numbered(tmp_path / "checkpoints")[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    state, path, broken = checkpoint.load_newest(tmp_path / "checkpoints")
    assert state["step"] == 2 and broken == [newest] and path != newest


def test_nothing_to_resume_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no checkpoint to resume from"):
        checkpoint.load_newest(tmp_path)


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step-000000001.pt"
    checkpoint.save({"step": 1}, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError):
        checkpoint.save({"step": 2}, path)
    assert checkpoint.load(path)["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
