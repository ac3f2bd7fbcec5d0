"""A preset that makes more views than the method uses, or fewer, is refused before anything is read."""

from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.modalities import make_modality
from tests.support.facts import facts, tells


@pytest.mark.parametrize(
    ("method", "views", "made", "used"), [("clip", "dino", "2", "1"), ("simclr", "instdisc", "1", "2")]
)
def test_views_of_images(method: str, views: str, made: str, used: str) -> None:
    with pytest.raises(ValueError, match=facts(f"{views} {method} {made} {used}")):
        make_modality(TrainConfig(method=method, views=views))


def test_views_of_series_and_sounds() -> None:
    with pytest.raises(ValueError, match=facts("whole makes 1")):
        make_modality(TrainConfig(data="waves", views="whole"))
    with pytest.raises(ValueError, match=facts("cpc makes 1")):
        make_modality(TrainConfig(data="melodies", views="cpc"))


@pytest.mark.parametrize("views", ["simclr", "shapes", "moco_v2"])
def test_draws_of_one_view_are_as_good_as_one(views: str) -> None:
    """Most presets are two equal views."""
    for method in ("instdisc", "clip", "simclr"):
        make_modality(TrainConfig(method=method, views=views))


def test_the_command_says_it_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--data", "glyphs:40", "--views", "instdisc", "--backbone", "micro"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert tells(line, "views instdisc 1 2")
    assert not (tmp_path / "runs").exists()
