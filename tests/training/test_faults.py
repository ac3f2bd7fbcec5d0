"""What goes wrong on a machine, as short drills; `make drills` has the long ones."""

import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from nearfar.config import TrainConfig
from nearfar.modalities.image.modality import ImageModality
from nearfar.model import checkpoint
from nearfar.training.config import OptimizerConfig
from nearfar.training.errors import NotFiniteError
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped, stop_after_step
from nearfar.training.train import resume_run, run
from tests.support.facts import facts, tells
from tests.training import runs
from tests.training.kills import killed_again_and_again
from tests.training.runs import QUIET, stop_after, weights

STOPPED = TrainingStopped(Path("run"), signal.SIGTERM)
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")


def config(method: str, **settings: Any) -> TrainConfig:
    """One epoch of five steps."""
    return runs.config(method, **{"epochs": 1, **settings})


def stopped(folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(steps, patch)
        with pytest.raises(TrainingStopped):
            Run(config("simclr"), folder, resume=False, console=QUIET).execute()


# Killed


@posix
def test_killed_at_random_moments_a_run_ends_in_the_same_weights(tmp_path: Path) -> None:
    kills, whole, mended = killed_again_and_again(tmp_path, kills=2, seed=0)
    assert kills == 2
    assert whole.keys() == mended.keys() and all(torch.equal(x, mended[name]) for name, x in whole.items())


def test_killed_before_the_first_checkpoint_it_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_step", die)
        with pytest.raises(Killed):
            Run(config("simclr"), tmp_path, resume=False, console=QUIET).execute()
    (tmp_path / "verdicts.json").write_text('[{"step"')  # as a kill could leave it before it was written whole
    resume_run(tmp_path, console=QUIET)
    lines = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [1, 3, 5]  # each once


def test_half_a_log_does_not_keep_a_run_from_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    stopped(tmp_path, 3, monkeypatch)
    (tmp_path / "verdicts.json").write_text('[{"step"')
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    resume_run(tmp_path, console=QUIET)
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_a_finished_run_whose_checkpoints_are_gone_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    Run(config("simclr"), tmp_path, resume=False, console=QUIET).execute()
    for path in checkpoint.numbered(tmp_path / "checkpoints"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=facts("checkpoint")):
        resume_run(tmp_path, console=QUIET)


# Checkpoints


@posix
def test_a_full_disk_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    """The file that the second checkpoint is written to is a device without room: a real ENOSPC."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / ".step-000000004.pt.unfinished").symlink_to("/dev/full")
    with pytest.raises(OSError, match=facts("step-000000004.pt No space left step-000000003.pt")):
        Run(config("simclr"), tmp_path, resume=False, console=QUIET).execute()
    assert [path.name for path in sorted(folder.glob("step-*"))] == ["step-000000002.pt", "step-000000003.pt"]
    assert checkpoint.load_newest(folder)[0]["step"] == 3
    resume_run(tmp_path, console=QUIET)  # there is room again
    assert checkpoint.load_newest(folder)[0]["step"] == 5


@posix
def test_a_disk_that_is_full_in_the_middle_of_a_checkpoint(tmp_path: Path) -> None:
    """torch makes another error of it; the one that is told is the system's."""
    import resource

    checkpoint.save_step({"step": 1}, tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match=facts("File too large step-000000001.pt")):
            checkpoint.save_step({"step": 2, "a": torch.zeros(9000), "b": torch.zeros(99_000)}, tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001.pt"]


def test_a_disk_that_takes_a_part_of_a_write(tmp_path: Path) -> None:
    """As one that is nearly full does, before it refuses the next."""

    class Nearly:
        def __init__(self) -> None:
            self.taken = b""

        def write(self, part: memoryview) -> int:
            self.taken += bytes(part[:3])
            return min(3, len(part))

    file = Nearly()
    assert checkpoint._Summed(file).write(b"1234567") == 7 and file.taken == b"1234567"  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "end flipped", "sum flipped", "foreign"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(damage: str, tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint.save_step({"step": step, "x": torch.ones(100)}, tmp_path, step)
    path = checkpoint.numbered(tmp_path)[-1]
    content = bytearray(path.read_bytes())
    if damage == "foreign":
        torch.save([1, 2, 3], path)
    else:
        place = {"flipped": len(content) // 2, "end flipped": -40, "sum flipped": -3}.get(damage, 0)
        content[place] ^= 1 if "flipped" in damage else 0
        path.write_bytes(content[: {"cut": len(content) // 2, "empty": 0}.get(damage)])
    state, found, broken = checkpoint.load_newest(tmp_path)
    assert state["step"] == 1 and found != path and broken == [path]


def test_falling_back_is_said_and_the_broken_one_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    stopped(tmp_path, 3, monkeypatch)
    path = checkpoint.numbered(tmp_path / "checkpoints")[-1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    console = Console(record=True, width=200, file=io.StringIO())
    resume_run(tmp_path, console=console)
    assert tells(console.export_text(), f"{path.name} step-000000002.pt")
    assert path.with_name(f"{path.name}.broken").exists()  # set aside: what is kept can be read
    kept = checkpoint.numbered(tmp_path / "checkpoints")
    assert [checkpoint.load(each)["step"] for each in kept] == [4, 5]


def test_a_flipped_bit_of_a_weight_would_not_be_seen_by_torch(tmp_path: Path) -> None:
    """Why checkpoints have sums of their own."""
    path = tmp_path / "step-000000001.pt"
    checkpoint.save({"step": 1, "x": torch.zeros(1000)}, path)
    content = bytearray(path.read_bytes())
    content[content.find(bytes(4000)) + 100] ^= 1
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)["x"].count_nonzero() == 1
    with pytest.raises(ValueError, match=facts("damaged")):
        checkpoint.load(path)


def test_a_checkpoint_of_another_format_is_refused_with_its_version(tmp_path: Path) -> None:
    path = tmp_path / "step-000000001.pt"
    checkpoint.save({"step": 1, "format": 99, "nearfar": "9.9"}, path)
    with pytest.raises(checkpoint.FormatError, match=facts("99 9.9")):
        checkpoint.load_newest(tmp_path)
    assert path.exists()


def test_a_nan_in_a_batch_stops_the_run_and_names_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    made = ImageModality.views_of_rows

    def poisoned(
        self: ImageModality, *arguments: object, step: int, **others: object
    ) -> Callable[[slice], list[torch.Tensor]]:
        views = made(self, *arguments, step=step, **others)  # type: ignore[arg-type]

        def some(rows: slice) -> list[torch.Tensor]:
            found = views(rows)
            if step == 3:
                found[0][3, 0, 0, 0] = float("nan")
            return found

        return some

    good = Run(config("moco"), tmp_path / "good", resume=False, console=QUIET)
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            good.execute()
    monkeypatch.setattr(ImageModality, "views_of_rows", poisoned)
    with pytest.raises(NotFiniteError, match=facts("finite step 3 step-000000003.pt")):
        Run(config("moco"), tmp_path / "bad", resume=False, console=QUIET).execute()
    state, _, broken = checkpoint.load_newest(tmp_path / "bad" / "checkpoints")
    assert state["step"] == 3 and not broken
    assert all(torch.equal(x, state["method"][name]) for name, x in weights(good).items())
    assert "not finite" in (tmp_path / "bad" / "verdicts.json").read_text()
    assert tells((tmp_path / "bad" / "report.html").read_text(), "Not healthy loss finite step 3")


@pytest.mark.parametrize("part, error", [("_fit", OSError("disk")), ("_fit", STOPPED), ("_evaluate", STOPPED)])
def test_a_run_has_its_page_however_it_ends(
    part: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(self: Run) -> None:
        raise error

    monkeypatch.setattr(Run, "_fit", lambda self: True)
    monkeypatch.setattr(Run, part, ends)
    with pytest.raises(type(error)):
        Run(config("simclr"), tmp_path, resume=False, console=QUIET).execute()
    assert tells((tmp_path / "report.html").read_text(), "not judged")


def test_a_gradient_that_is_not_finite_leaves_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    run = Run(config("simclr", optimizer=OptimizerConfig(name="adamw")), tmp_path, resume=False, console=QUIET)
    first = next(run.setup.method.encoder.parameters())
    before = first.detach().clone()
    first.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(NotFiniteError, match=facts("checkpoint none")):
        run.execute()
    assert torch.equal(first, before)


# Loading


def test_a_worker_that_dies_ends_the_run_in_a_line_and_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    begun = Run(config("simclr"), tmp_path, resume=False, console=QUIET)
    fetch, calls = type(begun.setup.train).fetch, iter(range(1000))

    def dying(self: object, indices: torch.Tensor) -> torch.Tensor:
        if next(calls) == 7:  # after the fingerprints of the parts
            raise MemoryError("no memory for 12 GB")
        return fetch(self, indices)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(begun.setup.train), "fetch", dying)
        with pytest.raises(MemoryError, match=facts("12 GB")):
            begun.execute()
    assert 1 <= checkpoint.load_newest(tmp_path / "checkpoints")[0]["step"] < 5
    resume_run(tmp_path, console=QUIET)
    assert checkpoint.load_newest(tmp_path / "checkpoints")[0]["step"] == 5


# SIGTERM


@posix
def test_a_second_sigterm_ends_at_once_and_what_comes_within_a_second_is_the_first() -> None:
    """A loop that never ends stands for a step that is longer than anyone's patience."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with stop_after_step(lambda number: os.write(writer, b"asked") and None):
            os.write(writer, b"ready")
            while True:
                time.sleep(0.01)
    assert os.read(reader, 5) == b"ready"
    os.kill(child, signal.SIGTERM)
    assert os.read(reader, 5) == b"asked"
    os.kill(child, signal.SIGTERM)  # the same one, sent to the group, too
    time.sleep(1.2)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


@posix
def test_sigterm_outside_of_training_ends_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Run, "execute", lambda self: os.kill(os.getpid(), signal.SIGTERM))
    console = Console(record=True, width=200, file=io.StringIO())
    for words in ("", f"nearfar train --resume {tmp_path}"):
        with pytest.raises(TrainingStopped) as stop:
            run(config("simclr"), tmp_path, console=console)
        assert stop.value.signal == signal.SIGTERM and stop.value.folder == tmp_path
        assert signal.getsignal(signal.SIGTERM) is before
        assert tells(console.export_text(), f"SIGTERM {words}")
        (tmp_path / "config.yaml").write_text("")
