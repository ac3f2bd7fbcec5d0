"""Ctrl-C and SIGTERM, as a real process gets them: both save, and after SIGTERM the status is 0, for a requeue."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.facts import tells

ENDLESS = ["--data", "glyphs:200", "--backbone", "micro", "--epochs", "100000", "--batch-size", "32"]
PATIENCE = 120  # seconds after which a process that does nothing is given up; no claim about speed


def start(arguments: list[str], folder: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "nearfar", "train", *arguments]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def newest(run: Path) -> int:
    """The step of the newest checkpoint, 0 where there is none."""
    return max((int(path.stem.split("-")[1]) for path in (run / "checkpoints").glob("step-*.pt")), default=0)


def interrupted(arguments: list[str], run: Path, *, beyond: int, by: signal.Signals = signal.SIGINT) -> str:
    """What the process says when it gets the signal once it has written a checkpoint after step `beyond`."""
    process = start(arguments, run.parent)
    try:
        limit = time.monotonic() + PATIENCE
        while newest(run) <= beyond and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(by)
        said, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == (0 if by == signal.SIGTERM else 130), said
    return said


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent SIGINT there")
def test_a_process_that_is_interrupted_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    run = tmp_path / "a run folder with a name that is longer than one line of a terminal of eighty columns"
    said = interrupted([*ENDLESS, "--out", str(run)], run, beyond=0)
    found = re.search(r"step (\d+) of \d+.*(nearfar train --resume .*)\n", said)
    assert found is not None, said
    assert int(found[1]) == newest(run) and found[2] == f"nearfar train --resume '{run}'"
    assert "Traceback" not in said
    assert f"{int(found[1]):,} steps" in (run / "report.html").read_text()
    (run / "report.html").unlink()

    again = interrupted(["--resume", str(run)], run, beyond=newest(run), by=signal.SIGTERM)
    assert tells(again, f"step {found[1]}")
    assert newest(run) > int(found[1])
    assert tells(again, "nearfar train --resume") and "Traceback" not in again
    page = (run / "report.html").read_text()  # every run has its page
    assert f"{newest(run):,} steps" in page and tells(page, "not finished") and 'class="verdict good"' not in page
