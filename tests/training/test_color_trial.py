"""`views.color` "auto": a short trial tells whether colors are content, and what it says is stored and kept."""

from colorsys import hsv_to_rgb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.data.dataset import ArrayDataset
from nearfar.modalities.config import ViewsConfig
from nearfar.training import color_trial, time_budget
from nearfar.training.color_trial import better, same_kind
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.training.runs import QUIET, config, stop_after, weights


def pictures(folder: Path, colors: bool, each: int = 60) -> str:
    """Four kinds of pictures: by hue, with stripes at angles that mean nothing, or by the angle, with such hues."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:32, :32]
    for kind in range(4):
        (folder / str(kind)).mkdir(parents=True)
        for number in range(each):
            other = int(random.integers(4))
            hue, turn = ((kind if of_kind else other) for of_kind in (colors, not colors))
            angle = np.pi / 6 * turn + random.normal(0, 0.05)
            wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * random.uniform(0.4, 0.9) + random.uniform(0, 6))
            tint = hsv_to_rgb((hue / 8 + random.normal(0, 0.01)) % 1, 0.5, 1)
            values = (130 + 80 * wave)[..., None] * np.array(tint) + random.normal(0, 12, (32, 32, 3))
            Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(folder / str(kind) / f"{number}.png")
    return str(folder)


def on(data: str, **settings: Any) -> TrainConfig:
    views = ViewsConfig(preset="photos", color="auto")
    return config("simclr", data=DataConfig(path=data, stored_size=32, validation=0.0), views=views, **settings)


@pytest.mark.parametrize(("colors", "expected"), [(True, {"keep"}), (False, {"mild", "vary"})])
def test_the_trial_finds_what_the_folders_are_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colors: bool, expected: set[str]
) -> None:
    monkeypatch.setattr(color_trial, "STEPS", 24)
    run = Run(on(pictures(tmp_path / "p", colors), steps=240), tmp_path / "run", resume=False, console=QUIET)
    color = run.setup.config.views.color
    assert color in expected and run.setup.config.notes[-1].startswith(f"views.color {color}: ")
    hue = {"keep": 0.02, "mild": 0.05, "vary": 0.1}[str(color)]
    assert all(view.hue == hue for view in run.setup.modality.recipes)  # type: ignore[attr-defined]


def test_it_is_mild_where_nothing_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(color_trial, "_features", lambda *_: pytest.fail("there is nothing to judge a trial by"))
    data = pictures(tmp_path / "p", True, each=30)
    flat = Run(on(f"{data}/0", steps=1000), tmp_path / "flat", resume=False, console=QUIET)
    short = Run(on(data, steps=20), tmp_path / "short", resume=False, console=QUIET)
    assert flat.setup.config.views.color == short.setup.config.views.color == "mild"


def test_a_resumed_run_tries_nothing_and_ends_in_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    data = pictures(tmp_path / "p", True, each=30)
    monkeypatch.setattr(color_trial, "LEAST_STEPS", 1)
    whole = Run(on(data, steps=10), tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(TrainingStopped):
            Run(on(data, steps=10), tmp_path / "stopped", resume=False, console=QUIET).execute()
    monkeypatch.setattr(color_trial, "_choice", lambda setup: pytest.fail("the colors are known"))
    stored = TrainConfig.from_yaml(tmp_path / "stopped" / "config.yaml")
    assert stored.views.color == whole.setup.config.views.color != "auto"
    resumed = Run(stored, tmp_path / "stopped", resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_other_ranks_take_the_colors_of_rank_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = on(pictures(tmp_path / "p", True, each=30), steps=900)
    stored = yaml.safe_load(asked.to_yaml())
    stored["views"]["color"] = "keep"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored))
    for module in (color_trial, time_budget):
        monkeypatch.setattr(module, "is_rank_zero", lambda: False)
    assert Run(asked, tmp_path, resume=False, console=QUIET).setup.config.views.color == "keep"


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["a/1", "a/2", "a/3", "b/1", "b/2", "b/3"], None, "folder"),
        (["1", "2", "3", "4", "5", "6"], None, None),
        (["a/1", "b/1", "c/1", "d/1", "e/1", "f/1"], None, None),
        (["1", "2", "3", "4", "5", "6"], [0, 0, 0, 1, 1, 1], "label"),
        (["a/1", "a/2", "a/3", "b/1", "b/2", "b/3"], [0, -1, -1, -1, -1, 1], "folder"),
    ],
)
def test_labels_come_before_folders(names: list[str], labels: list[int] | None, expected: str | None) -> None:
    found = same_kind(ArrayDataset(np.zeros((6, 4, 4, 3), np.uint8), names=names, labels=labels))
    assert (found and found[1]) == expected


def test_a_difference_that_may_be_chance_is_none() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = torch.rand(2, 400, generator=generator)
    assert better(one, other) == "mild"
    assert better(one + 0.2, other) == "keep" and better(one, other + 0.2) == "vary"
