"""A preset that makes more views than the method uses, or fewer, is refused before anything is read."""

from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.methods import check_views
from nearfar.modalities import make_modality


@pytest.mark.parametrize(
    ("method", "views", "made", "used"),
    [
        ("simclr", "dino", 10, "2"),
        ("byol", "dino", 10, "2"),
        ("instdisc", "byol", 2, "1"),
        ("clip", "dino", 10, "1"),
        ("simclr", "instdisc", 1, "2"),
    ],
)
def test_views_of_images(method: str, views: str, made: int, used: str) -> None:
    with pytest.raises(ValueError, match=f"--views {views} makes {made} views of a sample, and {method} uses {used}"):
        make_modality(TrainConfig(method=method, views=views))


def test_views_of_series_and_sounds() -> None:
    with pytest.raises(ValueError, match="--views whole makes 1 views"):
        make_modality(TrainConfig(data="waves", views="whole"))
    with pytest.raises(ValueError, match="--views cpc makes 1 views"):
        make_modality(TrainConfig(data="melodies", views="cpc"))


@pytest.mark.parametrize("views", ["simclr", "shapes", "moco_v2"])
def test_draws_of_one_view_are_as_good_as_one(views: str) -> None:
    """Most presets are two equal views."""
    for method in ("instdisc", "clip", "simclr"):
        make_modality(TrainConfig(method=method, views=views))


def test_the_third_text_of_a_triple_is_allowed() -> None:
    check_views("simcse", "", [1, 2, 3])
    with pytest.raises(ValueError, match="makes 4 views of a sample, and simcse uses 1 to 3"):
        check_views("simcse", "", [1, 2, 3, 4])


def test_the_command_says_it_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--data", "glyphs:40", "--views", "dino", "--backbone", "micro"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "--views dino" in line and "10" in line
    assert not (tmp_path / "runs").exists()
