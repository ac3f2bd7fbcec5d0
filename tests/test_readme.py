"""What the README tells its reader to type works as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


COMMANDS = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("nearfar ")])
def test_nearfar_commands_run(command: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", *shlex.split(command)]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_demo_runs(tmp_path: Path) -> None:
    """Fewer letters and one epoch; `test_demo.py` has the whole, among the slow tests."""
    run = tmp_path / "run"
    words = ["make", "demo", f"DEMO=--data glyphs:300 --epochs 1 --out {run}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (run / "report.html").is_file() and (run / "model.safetensors").is_file()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ") and c != "make demo"])
def test_make_targets_exist(command: str) -> None:
    run = subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_every_command_shown_is_tested() -> None:
    untested = [c for c in COMMANDS if not c.startswith(("make ", "nearfar ", "git clone ", "cd ", "pip install "))]
    assert COMMANDS and not untested
