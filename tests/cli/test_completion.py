"""Shell completion and the report of the environment."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.cli import COMMANDS, main
from nearfar.cli.completion import SCRIPTS, candidates
from tests.support.facts import tells


def test_commands_and_flags_are_completed() -> None:
    commands = list(COMMANDS)
    assert candidates(["se"], commands) == ["search", "select"] and set(candidates([""], commands)) >= COMMANDS.keys()
    assert {"--strategy", "--split"} <= set(candidates(["select", "x", "--s"], commands))
    assert candidates(["select", "x"], commands) == [] == candidates(["nothing", "--x"], commands)
    assert candidates(["--completion", "z"], commands) == ["zsh"]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_of_a_shell_is_printed_and_parses(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", shell]) == 0
    text = capsys.readouterr().out
    assert "nearfar --complete" in text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True, timeout=60)


def test_bash_completes_by_the_script(tmp_path: Path) -> None:
    command = tmp_path / "nearfar"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nearfar "$@"\n')
    command.chmod(0o755)
    script = f'{SCRIPTS["bash"]}\nCOMP_WORDS=(nearfar dup)\nCOMP_CWORD=1\n_nearfar\necho "${{COMPREPLY[@]}}"'
    paths = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=paths, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["duplicates"]


def test_completion_imports_no_torch() -> None:
    code = (
        "import sys; from nearfar.cli import main\n"
        "for words in (['se'], ['select', '--'], ['duplicates', '--']): main(['--complete', *words])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True)


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", "tcsh"]) == 2
    assert tells(capsys.readouterr().err, "tcsh bash zsh fish")


def test_info_has_versions_and_no_path_of_home(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert tells(text, "OMP_NUM_THREADS 3") and tells(text, "torch threads") and tells(text, "python")
    assert str(Path.home()) not in text and "/" not in text
    assert main(["info", "--json"]) == 0
    assert {"nearfar", "devices", "packages", "extras"} == set(json.loads(capsys.readouterr().out))
