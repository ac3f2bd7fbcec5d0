"""No process that nearfar starts imports code of the current folder."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.child_process import run_module
from nearfar.distributed import run_in_processes

PACKAGE = Path(__file__).parents[1] / "src" / "nearfar"
CALLS = {"os.system", "os.popen", "os.fork", "os.execv", "os.execvp", "os.posix_spawn", "os.spawnv", "spawn", "Process"}


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with modules of well-known names that leave a mark when they are imported."""
    for name in ("json", "yaml", "torch", "numpy", "lightning", "multiprocessing", "tokenize", "runpy", "signal"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'HACKED')!r}, 'a').write({name!r})\nraise SystemExit"
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path / "HACKED"


def test_modules_are_run_with_a_safe_path(poisoned: Path) -> None:
    assert "usage" in run_module("json.tool", "--help").stdout
    run_module("nearfar.training.memory_plan", "nowhere")
    assert not poisoned.exists()


def test_spawned_processes_have_a_safe_path(poisoned: Path) -> None:
    assert run_in_processes(1, print) == [None]
    assert not poisoned.exists()


def test_the_command_by_its_module_name(poisoned: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "nearfar", "recipes"], capture_output=True, text=True)
    assert done.returncode == 0 and not poisoned.exists()


def started_processes(file: Path) -> list[str]:
    """What a file does that may start a process, outside of `with safe_path()`."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    safe = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and any("safe_path()" in ast.unparse(item) for item in node.items)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in safe:
            name = ast.unparse(node.func)
            if (
                name in CALLS
                or "subprocess" in name
                or "multiprocessing" in name
                or name.endswith("ProcessPoolExecutor")
            ):
                found.append(f"{file.name}:{node.lineno} {name}")
    return found


def test_all_calls_that_start_processes_have_a_safe_path() -> None:
    found = [call for file in sorted(PACKAGE.rglob("*.py")) for call in started_processes(file)]
    assert not found
