"""Settings that cannot lead to a result are refused in one line, before the data are read."""

from pathlib import Path

import pytest

import nearfar
from nearfar.modalities.config import ViewsConfig
from nearfar.training.run import Run
from tests.support.facts import facts
from tests.support.models import save_untrained_of
from tests.training.runs import QUIET, config


@pytest.mark.parametrize(("key", "value"), [("count", 1_000_000), ("local", 65)])
def test_more_views_than_anyone_wants_are_refused(key: str, value: int) -> None:
    with pytest.raises(ValueError, match=facts(f"views.{key} {value} 64")):
        ViewsConfig(**{key: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "value"), [("color", "keep"), ("orientation", "rotate"), ("scale", "auto")])
def test_series_have_no_colors_orientation_and_scale(key: str, value: str, tmp_path: Path) -> None:
    views = ViewsConfig(**{key: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts(f"--views.{key} {value} series")):
        Run(
            config("simclr", data="waves:100", modality="series", views=views),
            tmp_path / "run",
            resume=False,
            console=QUIET,
        )


@pytest.mark.parametrize("size", [1, 7])
def test_images_that_are_too_small_to_learn_from_are_refused(size: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=facts(f"--image-size {size} 8")):
        Run(config("simclr", image_size=size), tmp_path / "run", resume=False, console=QUIET)


def test_advice_on_labels_fits_sentences(tmp_path: Path) -> None:
    run = save_untrained_of("text", tmp_path)
    with pytest.raises(ValueError, match=facts("labels columns text label")) as error:
        nearfar.evaluate(run, str(tmp_path / "lines.txt"), protocols=["knn"])
    assert "folder" not in str(error.value)
