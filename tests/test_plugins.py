"""A method of one's own, by MODULE:NAME: trained as any other, and what is wrong with it told in a line."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.methods import find_method
from nearfar.plugins import import_object
from nearfar.training.build_method import build_method, untrained_encoder
from nearfar.training.train import free_folder
from tests.support.facts import tells

METHOD = """
from nearfar.methods import SimCLR

class Mine(SimCLR):
    def __init__(self, encoder, *, features, samples=0, warmth=0.3):
        super().__init__(encoder, features=features, samples=samples, temperature=warmth)

class Bare(SimCLR):
    def __init__(self, encoder):
        super().__init__(encoder, features=8)

NUMBER = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of methods, which the command is called from."""
    (tmp_path / "methods_of_mine.py").write_text(METHOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # what is added to it goes again
    return tmp_path


def test_it_is_built_with_its_options_from_the_current_folder(here: Path) -> None:
    config = TrainConfig(method="methods_of_mine:Mine", backbone="micro", options={"warmth": 0.7})
    method = build_method(config, samples=10)
    assert type(method).__name__ == "Mine" and method.temperature == 0.7
    assert find_method("methods_of_mine:Mine") is import_object("methods_of_mine:Mine", "method")
    assert free_folder(config).as_posix() == "runs/glyphs-methods_of_mine-Mine"
    assert free_folder(replace(config, data="glyphs:400")).as_posix() == "runs/glyphs-400-methods_of_mine-Mine"


def test_the_untrained_encoder_needs_no_method() -> None:
    """A run may be evaluated where its method is not, and a card from elsewhere names no code to be run."""
    drawn = untrained_encoder(TrainConfig(method="no.such.module:Mine", backbone="micro"))
    other = build_method(TrainConfig(method="simclr", backbone="micro"), samples=10, untrained=True).encoder
    for a, b in zip(drawn.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            "no_such_module:Mine",
            "no_such_module:Mine 'no_such_module' MODULE:N",
        ),
        ("methods_of_mine:Yours", "methods_of_mine:Yours methods_of_mine"),
        (":Mine", "':Mine' MODULE:NAME"),
        (
            "methods_of_mine:NUMBER",
            "methods_of_mine:NUMBER class nearfar.meth",
        ),
        ("pathlib:Path", "pathlib:Path class nearfar.methods.Method"),
        ("methods_of_mine:Bare", "methods_of_mine:Bare"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    method: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", "glyphs:100", "--backbone", "micro", "--method", method]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert tells(line, said)
