"""Views set to "auto": a short trial tells what is content in colors, orientation and scale, and that is stored."""

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
from nearfar.modalities.config import VIEW_FACTORS, ViewsConfig
from nearfar.training import time_budget, view_trial
from nearfar.training.run import Run
from nearfar.training.setup import TrainingSetup
from nearfar.training.signals import TrainingStopped
from nearfar.training.view_trial import ViewTrial, choose_view_factors, decide, is_gray, same_kind
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


def on(data: str, views: dict[str, str] | None = None, **settings: Any) -> TrainConfig:
    made = ViewsConfig(preset="photos", **(views or {"color": "auto"}))  # type: ignore[arg-type]
    return config("simclr", data=DataConfig(path=data, stored_size=32, validation=0.0), views=made, **settings)


class Arms:
    """Trainings that take no time: how many neighbors are of the same kind is said beforehand.

    Attributes:
        trained: colors, orientation and scale of each training, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gains: dict[str, float] | None = None) -> None:
        self.trained: list[tuple[str, ...]] = []
        noise, gains = torch.rand(400, generator=torch.Generator().manual_seed(0)) / 10, gains or {}

        def train(trial: ViewTrial, views: dict[str, str]) -> tuple[str, ...]:
            self.trained.append(tuple(views.values()))
            return self.trained[-1]

        def share(options: tuple[str, ...], kinds: torch.Tensor) -> torch.Tensor:
            gain = sum(gains.get(f"{name} {option}", 0.0) for name, option in zip(VIEW_FACTORS, options, strict=True))
            return 0.3 + gain + noise.roll(len(self.trained))

        monkeypatch.setattr(ViewTrial, "_features", train)
        monkeypatch.setattr(view_trial, "neighbors_of_kind", share)


def chosen(run: Run) -> tuple[str | None, ...]:
    return tuple(getattr(run.setup.config.views, name) for name in VIEW_FACTORS)


ALL = dict.fromkeys(VIEW_FACTORS, "auto")


@pytest.mark.parametrize(("colors", "expected"), [(True, {"keep"}), (False, {"mild", "vary"})])
def test_the_trial_finds_what_the_folders_are_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colors: bool, expected: set[str]
) -> None:
    monkeypatch.setattr(view_trial, "STEPS", 24)
    run = Run(on(pictures(tmp_path / "p", colors), steps=240), tmp_path / "run", resume=False, console=QUIET)
    color = run.setup.config.views.color
    assert color in expected and run.setup.config.notes[-1].startswith(f"views.color {color}: ")
    hue = {"keep": 0.02, "mild": 0.05, "vary": 0.1}[str(color)]
    assert all(view.hue == hue for view in run.setup.modality.recipes)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_trial_finds_that_mirrored_pictures_are_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_trial, "STEPS", 24)
    data, y, x = tmp_path / "p", *np.mgrid[:32, :32]
    random = np.random.default_rng(0)
    for kind, side in (("rising", 1), ("falling", -1)):
        (data / kind).mkdir(parents=True)
        for number in range(120):
            wave = np.sin((x + side * y) * random.uniform(0.3, 0.9) + random.uniform(0, 6))
            values = 128 + 80 * wave + random.normal(0, 20, (32, 32))
            Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(data / kind / f"{number}.png")
    views = {"orientation": "auto"}
    assert chosen(Run(on(str(data), views, steps=400), tmp_path / "run", resume=False, console=QUIET))[1] == "keep"


def test_it_is_the_usual_where_nothing_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms, data = Arms(monkeypatch), pictures(tmp_path / "p", True, each=20)
    flat = Run(on(f"{data}/0", ALL, steps=1000), tmp_path / "flat", resume=False, console=QUIET)
    short = Run(on(data, ALL, steps=20), tmp_path / "short", resume=False, console=QUIET)
    assert chosen(flat) == chosen(short) == ("mild", "flip", "keep") and arms.trained == []
    assert [note.split(":")[0] for note in flat.setup.config.notes] == [
        "views.color mild",
        "views.orientation flip",
        "views.scale keep",
    ]


def test_each_factor_is_tried_with_what_won_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures(tmp_path / "p", True, each=10)
    arms = Arms(monkeypatch, {"color vary": 0.1, "orientation rotate": 0.2, "orientation keep": 0.1, "scale keep": 0.1})
    assert chosen(Run(on(data, ALL, steps=1500), tmp_path / "r", resume=False, console=QUIET)) == (
        ("vary", "rotate", "keep")
    )
    assert arms.trained == [
        ("keep", "flip", "vary"),
        ("vary", "flip", "vary"),
        ("vary", "keep", "vary"),
        ("vary", "rotate", "vary"),
        ("vary", "rotate", "keep"),
    ]


def test_what_is_not_clearly_better_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures(tmp_path / "p", True, each=10)
    arms = Arms(monkeypatch, {"color vary": 0.001, "orientation keep": 0.001, "scale keep": 0.001})
    run = Run(on(data, ALL, steps=1500), tmp_path / "r", resume=False, console=QUIET)
    assert chosen(run) == ("mild", "flip", "vary") and len(arms.trained) == 5
    assert all(note.endswith("no clear difference") for note in run.setup.config.notes)


@pytest.mark.parametrize(
    ("length", "trainings"),
    [
        ({"steps": 199}, 0),
        ({"steps": 200}, 2),
        ({"steps": 749}, 2),
        ({"steps": 750}, 5),
        ({"steps": 1500}, 5),
        ({"time": "31s"}, 0),
        ({"time": "60s"}, 2),
        ({"time": "119s"}, 2),
        ({"time": "2m"}, 5),
        ({"time": "4m"}, 5),
    ],
)
def test_in_a_short_run_fewer_factors_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: dict[str, Any], trainings: int
) -> None:
    arms, data = Arms(monkeypatch, {"color keep": 0.1}), pictures(tmp_path / "p", True, each=10)
    setup = TrainingSetup(on(data, ALL, **length), QUIET)
    choose_view_factors(setup, tmp_path / "run", QUIET)
    assert len(arms.trained) == trainings
    assert setup.config.views.color == ("keep" if trainings else "mild")


def test_a_slow_machine_tries_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms, data = Arms(monkeypatch), pictures(tmp_path / "p", True, each=10)
    setup = TrainingSetup(on(data, ALL, time="10m"), QUIET)
    now = iter(range(0, 10_000, 60))
    monkeypatch.setattr(view_trial.time, "perf_counter", lambda: float(next(now)))
    choose_view_factors(setup, tmp_path / "run", QUIET)
    assert len(arms.trained) == 2


def test_gray_pictures_have_no_colors_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures(tmp_path / "p", True, each=10)
    for path in Path(data).rglob("*.png"):
        Image.open(path).convert("L").save(path)
    arms = Arms(monkeypatch, {"orientation keep": 0.1})
    run = Run(on(data, ALL, steps=1500), tmp_path / "r", resume=False, console=QUIET)
    assert chosen(run) == ("mild", "keep", "vary") and "gray" in run.setup.config.notes[0]
    assert [options[0] for options in arms.trained] == ["mild"] * 4


def test_what_the_user_said_is_in_force_and_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms, data = Arms(monkeypatch, {"orientation keep": 0.1}), pictures(tmp_path / "p", True, each=10)
    views = {"color": "keep", "orientation": "auto", "scale": "keep"}
    assert chosen(Run(on(data, views, steps=1500), tmp_path / "r", resume=False, console=QUIET)) == ("keep",) * 3
    assert arms.trained == [("keep", option, "keep") for option in ("flip", "keep", "rotate")]


@pytest.mark.parametrize(("told", "expected"), [(0.7, "keep"), (0.5, "flip")])
def test_without_labels_the_mirror_test_decides_the_orientation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: float, expected: str
) -> None:
    data, seen = tmp_path / "p", []

    def tell(pictures: torch.Tensor, seed: int) -> torch.Tensor:
        seen.append(len(pictures))
        return torch.arange(100) < 100 * told

    monkeypatch.setattr(view_trial.mirror_test, "tell_mirrored", tell)
    monkeypatch.setattr(view_trial.color_test, "LEAST_PICTURES", 401)
    data.mkdir()
    for number in range(400):
        Image.new("RGB", (8, 8), (number % 256, 90, 20)).save(data / f"{number}.png")
    for length, option in (({"steps": 400}, "flip"), ({"steps": 500}, expected)):
        setup = TrainingSetup(on(str(data), ALL, **length), QUIET)  # type: ignore[arg-type]
        choose_view_factors(setup, tmp_path / "run", QUIET)
        views = setup.config.views
        assert (views.color, views.orientation, views.scale) == ("mild", option, "keep")
    assert seen == [400]


@pytest.mark.parametrize(("agreement", "expected"), [(0.1, "vary"), (0.25, "mild"), (0.5, "keep")])
def test_without_labels_the_color_test_decides_the_colors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agreement: float, expected: str
) -> None:
    arms = Arms(monkeypatch)
    monkeypatch.setattr(view_trial.color_test, "LEAST_PICTURES", 40)
    monkeypatch.setattr(view_trial.color_test, "color_agreement", lambda pictures, features, seed: agreement)
    data = f"{pictures(tmp_path / 'p', True, each=40)}/0"
    for length, color, trainings in (({"steps": 299}, "mild", 0), ({"steps": 300}, expected, 1)):
        setup = TrainingSetup(on(data, ALL, **length), QUIET)  # type: ignore[arg-type]
        choose_view_factors(setup, tmp_path / "run", QUIET)
        assert setup.config.views.color == color and len(arms.trained) == trainings
    assert arms.trained == [("vary", "flip", "vary")]
    assert f"{agreement:.2f}" in setup.config.notes[0]


def test_views_png_shows_random_samples_under_the_chosen_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures(tmp_path / "p", True, each=10)
    shown = {}
    for color in ("keep", "vary"):
        Arms(monkeypatch, {f"color {color}": 0.1})
        setup = TrainingSetup(on(data, ALL, steps=1500), QUIET)
        choose_view_factors(setup, tmp_path / color, QUIET)
        line = setup.modality.show(setup.train, tmp_path / color)
        assert f"color {color}, orientation flip, scale vary, shown in" in line
        shown[color] = np.asarray(Image.open(tmp_path / color / "views.png")).astype(float)[2:-2]
    rows = shown["keep"][48::98, 2 : 2 + 96].mean(1)  # (12, 3) mean colors of the originals
    assert len(np.unique((rows / rows.max(1, keepdims=True)).round(1), axis=0)) >= 3  # not the first kind alone
    tones = {}
    for color, sheet in shown.items():
        first, view = (sheet[48::98, x : x + 96].mean(1) for x in (2, 100))
        tones[color] = abs(first / first.sum(1, keepdims=True) - view / view.sum(1, keepdims=True)).mean()
    assert tones["vary"] > 2 * tones["keep"]


def test_a_resumed_run_tries_nothing_and_ends_in_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    data = pictures(tmp_path / "p", True, each=30)
    Arms(monkeypatch, {"color keep": 0.1, "orientation rotate": 0.1, "scale keep": 0.1})
    monkeypatch.setattr(view_trial, "STEPS", 1)
    monkeypatch.setattr(view_trial, "LEAST_STEPS", 0)
    whole = Run(on(data, ALL, steps=10), tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(TrainingStopped):
            Run(on(data, ALL, steps=10), tmp_path / "stopped", resume=False, console=QUIET).execute()
    monkeypatch.setattr(ViewTrial, "choice", lambda *_: pytest.fail("the views are known"))
    stored = TrainConfig.from_yaml(tmp_path / "stopped" / "config.yaml")
    assert stored.views == whole.setup.config.views and "auto" not in chosen(whole)
    resumed = Run(stored, tmp_path / "stopped", resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_other_ranks_take_the_views_of_rank_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = on(pictures(tmp_path / "p", True, each=10), ALL, steps=900)
    stored = yaml.safe_load(asked.to_yaml())
    stored["views"] |= {"color": "keep", "orientation": "rotate", "scale": "vary"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored))
    for module in (view_trial, time_budget):
        monkeypatch.setattr(module, "is_rank_zero", lambda: False)
    assert chosen(Run(asked, tmp_path, resume=False, console=QUIET)) == ("keep", "rotate", "vary")


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["a/1", "a/2", "a/3", "b/1", "b/2", "b/3"], None, "folder"),
        (["1", "2", "3", "4", "5", "6"], None, None),
        (["a/1", "b/1", "c/1", "d/1", "e/1", "f/1"], None, None),
        (["1", "2", "3", "4", "5", "6"], [0, 0, 0, 1, 1, 1], "label"),
        (["a/1", "a/2", "a/3", "b/1", "b/2", "b/3"], [0, -1, -1, -1, -1, 1], "folder"),
        ([f"{word}.{number}.png" for word in ("cat", "dog") for number in range(3)], None, "word in their file names"),
        (["a/b 1", "a/b 2", "a/b 3", "c/d 1", "c/d 2", "c/d 3"], None, "folder"),
        (["IMG_1", "IMG_2", "IMG_3", "DSC_1", "DSC_2", "DSC_3"], None, None),
        (["a1f", "a2e", "a3d", "b1c", "b2b", "b3a"], None, None),
    ],
)
def test_labels_come_before_folders_and_folders_before_words_of_file_names(
    names: list[str], labels: list[int] | None, expected: str | None
) -> None:
    found = same_kind(ArrayDataset(np.zeros((6, 4, 4, 3), np.uint8), names=names, labels=labels))
    assert (found and found[1]) == expected


def test_a_difference_that_may_be_chance_is_none() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = torch.rand(2, 400, generator=generator)
    assert decide({"keep": one, "vary": other}, "mild") == "mild"
    assert decide({"keep": one + 0.2, "vary": other}, "mild") == "keep"
    assert decide({"keep": one, "vary": other + 0.2}, "mild") == "vary"
    assert decide({"flip": one, "keep": one, "rotate": one}, "flip") == "flip"
    assert decide({"flip": one, "keep": one + 0.2, "rotate": one + 0.1}, "flip") == "keep"
    assert decide({"flip": one + 0.2, "keep": one, "rotate": other}, "flip") == "flip"


def test_what_short_trials_favor_must_be_far_ahead() -> None:
    shares = {"vary": torch.full((400,), 0.5), "keep": torch.full((400,), 0.54)}
    assert decide(shares, "vary") == "keep"
    assert decide(shares, "vary", margin=0.1) == "vary"
    assert decide({**shares, "keep": shares["keep"] + 0.02}, "vary", margin=0.1) == "keep"


@pytest.mark.parametrize(("tint", "expected"), [(0, True), (1, True), (30, False)])
def test_pictures_with_hardly_any_color_are_gray(tint: int, expected: bool) -> None:
    pixels = np.repeat(np.random.default_rng(0).integers(0, 200, (300, 8, 8, 1), dtype=np.uint8), 3, axis=3)
    pixels[..., 0] += tint
    assert is_gray(ArrayDataset(pixels, names=[str(number) for number in range(300)])) == expected
