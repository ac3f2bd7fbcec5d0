"""The faults of `tests/training/test_faults.py` as they happen to real commands, in their long form: `make drills`."""

import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from nearfar.model import checkpoint
from tests.support.facts import tells
from tests.training.kills import flat, killed_again_and_again
from tests.training.test_interrupt import PATIENCE, newest, start

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and limits as POSIX has them"),
]

SHORT = ["--data", "glyphs:400", "--backbone", "micro", "--batch-size", "32", "--checkpoint-every", "5"]


def finished(arguments: list[str], folder: Path) -> str:
    process = start(arguments, folder)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


def last(run: Path) -> dict[str, torch.Tensor]:
    return flat(checkpoint.load_newest(run / "checkpoints")[0])


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(x, other[name]) for name, x in one.items())


def test_killed_twenty_times_at_random_moments_a_run_ends_in_the_same_weights(tmp_path: Path) -> None:
    """Bit for bit, and so is what the optimizer remembers."""
    kills, whole, mended = killed_again_and_again(tmp_path, kills=20, seed=1, epochs=12)
    assert kills == 20 and same(whole, mended)


def test_the_command_itself_killed_and_resumed(tmp_path: Path) -> None:
    finished([*SHORT, "--epochs", "4", "--out", str(tmp_path / "whole")], tmp_path)
    run, chance, kills = tmp_path / "killed", random.Random(0), 0
    arguments = [*SHORT, "--epochs", "4", "--out", str(run)]
    while kills < 3:
        process = start(["--resume", str(run)] if (run / "config.yaml").exists() else arguments, tmp_path)
        limit, before = time.monotonic() + PATIENCE, newest(run)
        while newest(run) <= before and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.5))
        process.kill()
        process.communicate()
        kills += 1
        if newest(run) == newest(tmp_path / "whole"):
            break
    finished(["--resume", str(run)], tmp_path)
    assert same(last(tmp_path / "whole"), last(run)) and (run / "report.html").exists()


def test_a_full_disk(tmp_path: Path) -> None:
    """A file system of a few checkpoints: the run ends in a line, and goes on when there is room."""
    whole = tmp_path / "whole"
    finished([*SHORT, "--epochs", "2", "--out", str(whole)], tmp_path)
    size = max(path.stat().st_size for path in (whole / "checkpoints").glob("step-*.pt"))
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={int(2.5 * size) + 400_000}", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        process = start([*SHORT, "--epochs", "2", "--out", str(disk / "run")], tmp_path)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 1 and "Traceback" not in said, said
        assert tells(said.replace("\n", " "), "No space left on device")
        state, path, broken = checkpoint.load_newest(disk / "run" / "checkpoints")
        assert state["step"] > 0 and not broken
        subprocess.run(["mount", "-o", "remount,size=1g", str(disk)], check=True)
        said = finished(["--resume", str(disk / "run")], tmp_path)
        assert tells(said, f"step {state['step']} {path.name}") and path.name in said
        assert same(last(whole), last(disk / "run"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a quota: EFBIG in the middle of a checkpoint."""
    words = [sys.executable, "-m", "nearfar", "train", *SHORT, "--epochs", "2", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert tells(done.stderr.replace("\n", " "), "File too large")


def test_sigterm_within_a_grace_period_and_the_run_started_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    finished([*SHORT, "--epochs", "6", "--out", str(tmp_path / "whole")], tmp_path)
    process = start([*SHORT, "--epochs", "6", "--out", str(run)], tmp_path)
    while newest(run) < 5 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=30)  # SLURM's KillWait and Kubernetes' grace period
    assert process.returncode == 0 and tells(said.replace("\n", " "), f"--resume {run}")
    assert "Traceback" not in said and not (run / "model.safetensors").exists()
    finished(["--resume", str(run)], tmp_path)
    assert same(last(tmp_path / "whole"), last(run))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_process_of_four_dies_and_the_run_resumes_on_two(tmp_path: Path, strategy: str) -> None:
    """The run ends with a message, soon, and goes on with another number of processes."""
    run = tmp_path / "run"
    arguments = [*SHORT, "--epochs", "200", "--out", str(run), "--processes", "4", "--strategy", strategy]
    process = start(arguments, tmp_path)
    while newest(run) < 5 and process.poll() is None:
        time.sleep(0.05)
    own = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    children = [int(child) for child in own.read_text().split()]
    assert children, "the processes are expected to be children of the command"
    os.kill(children[-1], signal.SIGKILL)
    said, _ = process.communicate(timeout=PATIENCE)  # and does not wait for the dead
    assert process.returncode not in (0, None) and "Traceback" not in said, said
    assert len(re.findall(r"process\s[^;]*\bdied", said)) == 1 and tells(said, "checkpoint"), said
    assert tells(said.replace("\n", " "), f"--resume {run} --processes N") and "gloo" not in said, said
    step = newest(run)
    more = str(step // 11 + 2)  # epochs of eleven steps
    said = finished(["--resume", str(run), "--epochs", more, "--processes", "2"], tmp_path)
    assert tells(said, f"step {step}") and newest(run) == 11 * int(more)
