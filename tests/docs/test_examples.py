"""Every example runs, with small sizes given by its own arguments, comes to its end, and has learned by then."""

import importlib
import re
from pathlib import Path

import pytest
from PIL import Image

from nearfar.cli import main as nearfar
from tests.support.facts import tells

EXAMPLES = Path(__file__).parents[2] / "examples"

# The arguments of each, and what it must have said. Numbers named `untrained` and `trained` are compared.
RUNS = {
    "own_loop": ("--steps 200", r"untrained (?P<untrained>\d+)%, trained (?P<trained>\d+)% of 1,000"),
    "simclr_folder": (
        "--letters 120 --epochs 1 --backbone micro --out runs/x",
        r"(?s)(Better|Same|WORSE) (than|as) its start.+Try next: .+most similar to \w/\d+.png: .+runs/x/report.html",
    ),
    "clip_captions": (
        "--data glyphs:600 --epochs 6 --out runs/clip",
        (
            r"(?s)a red letter K on white\n  \S+  \S+  \w+ \w+.* letter"
            r".*: untrained (?P<untrained>\S+)%, trained (?P<trained>\S+)%"
        ),
    ),
    "cpc_sound": (
        "--data melodies:100 --epochs 10",
        r"1 frames ahead: untrained (?P<untrained>\d+)% right, trained (?P<trained>\d+)%",
    ),
    "search_app": (
        "--data glyphs:600 --run runs/clip --ask red --ask page.png",
        (
            r"(?s)600 pictures are in the index\n.*: untrained (?P<untrained>\S+)%, trained (?P<trained>\S+)%\n"
            r"red:\n  \S+  \S+  an? \w+ letter .*page.png:\n  \S+"
        ),
    ),
    "new_method": ("--data glyphs:120 --epochs 1", r"'trained': 0\.\d+, 'untrained': 0\.\d+"),
    "swap_losses": ("--pairs 64", r"(?s)SimCLR: .*; lightly.*CLIP: .*; open_clip.*SupCon: .*; pytorch_metric"),
}

# By how many per cent points the trained must be above the untrained: far more than chance, and less than is reached.
LEARNED = {"own_loop": 50, "clip_captions": 40, "search_app": 40, "cpc_sound": 8}


@pytest.mark.parametrize("names", ["own_loop", "simclr_folder", "clip_captions search_app", "cpc_sound", "new_method"])
def test_an_example_runs(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures of the evaluation, which take most of the time of so small a run, are left out."""
    monkeypatch.setattr("nearfar.training.final_evaluation.draw_curves", lambda *_: [])
    in_a_folder(tmp_path, monkeypatch)
    for name in names.split():
        run(name, capsys)


def test_losses_are_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with an error where values or gradients differ from the library's."""
    in_a_folder(tmp_path, monkeypatch)
    run("swap_losses", capsys)


def in_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(EXAMPLES)
    Image.new("RGB", (24, 24), "red").save("page.png")


def run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags, said = RUNS[name]
    importlib.import_module(name).main(flags.split())
    found = re.search(said, capsys.readouterr().out)
    assert found is not None
    if name in LEARNED:
        assert float(found["trained"]) > float(found["untrained"]) + LEARNED[name]


def test_a_new_method_is_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLES)
    assert nearfar(["check", "new_method:HardTwins", "--processes", "1"]) == 0
    assert tells(capsys.readouterr().out, "training agrees")


def test_every_example_is_listed_and_run() -> None:
    found = {path.stem for path in EXAMPLES.glob("*.py")}
    listed = set(re.findall(r"\[(\w+)\.py\]\(\1\.py\)", (EXAMPLES / "README.md").read_text()))
    assert found == set(RUNS) == listed
