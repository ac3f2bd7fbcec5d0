"""The command: quick to answer, and one line where something is wrong."""

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import nearfar
from nearfar.cli import COMMANDS, main
from nearfar.cli.errors import error_line
from nearfar.cli.help_text import FIRST
from nearfar.progress import stage
from tests.support.facts import facts, tells


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
    assert f"nearfar {command}" in help_of(command, "--help", capsys)


def help_of(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        status: object = main([command, flag])
    except SystemExit as stop:
        status = stop.code
    assert status == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("command", FIRST)
def test_long_help_begins_with_few_flags(
    command: str, columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    first, full = (help_of(command, flag, capsys) for flag in ("--help", "--help-all"))
    assert all(len(line) <= int(columns) for line in [*first.splitlines(), *full.splitlines()])
    named = [flag.split()[0] for group in FIRST[command][2].values() for flag in group]
    assert 10 <= len(named) <= 11 and all(re.search(rf"^ +{name}\b|{name}[ ,]", full, re.M) for name in named)
    assert all(name in first for name in named) and "--help-all" in first
    assert len(first.splitlines()) < 60 < len(full.splitlines())


def test_a_misspelt_command_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chek"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert tells(line, "nearfar 'chek' 'check'")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lab", "EXPERIMENT --help"),
        ("lab bounds", "EXPERIMENT 'bounds'"),
        ("embed run", "required"),
        ("search run e.npz", "--image --sound --text"),
        ("export run --format onx", "--format 'onx'"),
        ("recipes --rerun", "--rerun --out NAME"),
        ("doctor", "required data"),
        ("doctor --encodr", "--encodr --encoder"),
        ("select e.npz --num 3", "--num -n"),
    ],
)
def test_a_mistake_in_the_words_is_one_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        stop.value.code == 2
        and line.startswith(f"nearfar {words.split()[0]}: ")
        and tells(line, said)
        and "usage" not in line
    )


def test_an_error_is_one_line_and_debug_shows_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--device", "nowhere"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(ValueError, match=facts("'nowhere'")):
        main(["check", "--device", "nowhere", "--debug"])


def test_an_error_in_ones_own_method_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "from nearfar.methods import SimCLR",
        "class Broken(SimCLR):",
        "    def contrast(self, e, **facts):",
        "        return e['nokey']",
    ]
    (tmp_path / "mine_broken.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = "--method mine_broken:Broken --data glyphs:64 --backbone micro --epochs 1 --batch-size 16"
    assert main(["train", *words.split()]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert tells(line, "nearfar train: KeyError 'nokey' mine_broken.py line 4 --debug")


def test_what_the_package_says_stands_alone_and_what_it_does_not_has_a_place() -> None:
    def told(call: Callable[[], object]) -> str:
        try:
            call()
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next.tb_next  # type: ignore[union-attr]
            return error_line(error)
        return ""

    from nearfar.messages import nearest_or_all
    from nearfar.training.plan_text import parse_size
    from nearfar.yaml_reader import read_yaml

    assert told(lambda: parse_size("much")) == "memory is 'much', expected a size such as --memory 8GB or 512MiB"
    assert told(lambda: read_yaml(Path("none.yaml"))) == "there is no file 'none.yaml'"
    unforeseen = told(lambda: nearest_or_all("a", None))  # type: ignore[arg-type]
    assert re.fullmatch(r"TypeError .* in nearfar/messages\.py, line \d+; --debug shows the traceback", unforeseen)


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
    assert tells(capsys.readouterr().out, "loss gradient agrees")


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_every_flag_is_described(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = help_of(command, "--help-all", capsys)
    assert "<class" not in said and "How " in said and "None" not in said
    flags = re.split(r"\n  (?=--)", said.partition("\nthe run:")[2])[1:]
    bare = [flag.split()[0] for flag in flags if not re.match(r"\S+( \S+)?( \.\.\.)?\s+\w", flag)]
    assert len(flags) > 20 and bare == []
