"""The command: quick to answer, and one line where something is wrong."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import nearfar
from nearfar.cli import COMMANDS, main
from nearfar.cli.stages import stage


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_import_no_torch(flag: str) -> None:
    program = (
        "import sys\nfrom nearfar.cli import main\n"
        f"status = main([{flag!r}])\n"
        "heavy = {'torch', 'numpy', 'lightning', 'rich', 'jsonargparse'} & set(sys.modules)\n"
        "sys.exit(status or (f'imported {heavy}' if heavy else 0))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert ("usage: nearfar" if flag == "--help" else nearfar.__version__) in run.stdout


def test_the_installed_command_and_the_module_answer_alike() -> None:
    installed = subprocess.run([Path(sys.executable).parent / "nearfar", "--version"], capture_output=True, text=True)
    module = subprocess.run([sys.executable, "-m", "nearfar", "--version"], capture_output=True, text=True)
    assert installed.stdout == module.stdout == f"nearfar {nearfar.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_file_and_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"nearfar {command}" in capsys.readouterr().out


def test_a_misspelt_command_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chek"]) == 2
    assert capsys.readouterr().err == "nearfar: there is no command 'chek'; did you mean 'check'?\n"


def test_an_error_is_one_line_and_debug_shows_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--device", "nowhere"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(ValueError, match="there is no device 'nowhere' here"):
        main(["check", "--device", "nowhere", "--debug"])


def test_stages_are_lines_where_there_is_no_terminal() -> None:
    for terminal in (False, True):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        with stage(console, "first [1/2]") as say:
            say("second")
        said = console.file.getvalue()  # type: ignore[attr-defined]
        assert (said == "first [1/2] …\nsecond …\n") is not terminal


@pytest.mark.slow  # README's command is tested there
def test_check_passes_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--pairs", "64", "--processes", "1"]) == 0
    assert "every loss and every gradient agrees with its definition here" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_every_flag_is_described(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = capsys.readouterr().out
    assert "<class" not in said and "How the" in said
    flags = re.split(r"\n  (?=--)", said.partition("\noptions:")[2])[1:]
    bare = [flag.split()[0] for flag in flags if re.match(r"\S+( \S+)?(, \S+ \S+)?\s+\(type:", flag)]
    assert len(flags) > 20 and bare == []
