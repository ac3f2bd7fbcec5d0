"""Automatic settings of runs on series: what is chosen in typical situations, and what the user said stays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar.config import TrainConfig, completed
from nearfar.methods import known_method
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.series.automatic import SeriesFacts, choose, look_at
from nearfar.settings import build


def chosen(count: int, length: int, method: str = "simclr", **given: Any) -> Automatic:
    return choose(Request(given, known_method(method)), SeriesFacts(count, length, 1, True))


@pytest.mark.parametrize(  # the table of docs/automatic.md
    ("count", "length", "method", "backbone", "batch", "steps"),
    [
        (200, 150, "simclr", "kernels", 16, 300),
        (5_000, 500, "simclr", "kernels", 16, 1250),
        (200, 150, "moco", "kernels", 32, 300),
        (200, 150, "cpc", "cpc-kernels", 32, 300),
        (40, 60, "moco", "kernels", 16, 300),
    ],
)
def test_typical_situations(count: int, length: int, method: str, backbone: str, batch: int, steps: int) -> None:
    found = chosen(count, length, method).settings
    assert (found["backbone"], found["batch_size"], found["steps"]) == (backbone, batch, steps)
    assert found["optimizer"] == {"name": "muon", "lr": 0.005}


def test_how_long_is_left_to_a_user_who_says_so() -> None:
    assert all("steps" not in chosen(900, 64, **{name: 3}).settings for name in ("epochs", "steps", "time"))


def test_a_learning_rate_keeps_the_optimizer_of_its_user() -> None:
    assert "optimizer" not in chosen(900, 64, optimizer={"lr": 0.1}).settings


@pytest.mark.parametrize(
    ("own", "shared", "normalize"),
    [(0.9, 0.6, "series"), (0.6, 0.9, "data"), (0.6, 0.6, "series"), (None, None, "series")],
)
def test_labels_decide_whether_height_and_level_matter(own: float | None, shared: float | None, normalize: str) -> None:
    facts = SeriesFacts(300, 64, 1, False, own, shared)
    found = choose(Request({}, known_method("simclr")), facts)
    assert found.settings["series"]["normalize"] == normalize
    assert found.reasons["series.normalize"]


def written(path: Path, height: float) -> str:
    """Sines (label 0) and squares (1); `height` of the second class, all of any phase, level and speed."""
    chance, rows = np.random.default_rng(0), []
    for number in range(120):
        label = number % 2
        phase = np.linspace(0, chance.uniform(12, 20), 70) + chance.uniform(0, 6)
        wave = np.sin(phase) if label == 0 or height != 1 else np.sign(np.sin(phase))
        values = (height if label else 1.0) * wave + 0.1 * chance.standard_normal(70)
        scale = 1.0 if height != 1 else np.exp(chance.standard_normal())
        rows.append("\t".join(map(str, [label, *(scale * values)])))
    path.write_text("\n".join(rows), encoding="utf-8")
    return str(path)


def look(data: str, **given: Any) -> SeriesFacts | None:
    return look_at(Request({"data": {"path": data}, **given}, known_method("simclr")))


def test_series_are_counted_and_compared_by_their_labels(tmp_path: Path) -> None:
    facts = look(written(tmp_path / "Height_TRAIN.tsv", height=3.0))
    assert facts is not None and (facts.count, facts.length, facts.channels, facts.normalized) == (120, 70, 1, False)
    assert facts.own is not None and facts.shared is not None
    assert facts.shared > facts.own + 0.2  # the classes differ by their height alone
    facts = look(written(tmp_path / "Shape_TRAIN.tsv", height=1.0))
    assert facts is not None and facts.own is not None and facts.shared is not None and facts.own >= facts.shared
    assert look(str(tmp_path / "nowhere_TRAIN.tsv")) is None


def test_a_users_normalization_needs_no_comparison(tmp_path: Path) -> None:
    data = written(tmp_path / "Height_TRAIN.tsv", height=3.0)
    facts = look(data, series={"normalize": "series"})
    assert facts is not None and facts.own is None
    assert completed({"data": data, "series": {"normalize": "series"}})["series"] == {"normalize": "series"}


def test_what_was_chosen_is_stored_and_what_was_asked_for_stays(tmp_path: Path) -> None:
    data = written(tmp_path / "Height_TRAIN.tsv", height=3.0)
    config = build(TrainConfig, completed({"data": data}), "train")
    assert (config.backbone, config.optimizer.name, config.series.normalize) == ("kernels", "muon", "data")
    assert config.options == {"temperature": 0.1, "hidden": 128} and config.steps is not None
    assert any(note.startswith("series.normalize data: ") for note in config.notes)
    asked = {"data": data, "backbone": "dilated", "options": {"temperature": 0.5}, "epochs": 2, "batch_size": 24}
    config = build(TrainConfig, completed({**asked, "optimizer": {"name": "adamw"}}), "train")
    assert (config.backbone, config.options["temperature"], config.batch_size) == ("dilated", 0.5, 24)
    assert (config.optimizer.name, config.optimizer.lr, config.steps, config.epochs) == ("adamw", None, None, 2)
    assert not any(note.startswith(("backbone", "optimizer", "steps", "batch")) for note in config.notes)


def test_the_recipe_paper_and_built_in_series_have_nothing_automatic(tmp_path: Path) -> None:
    data = written(tmp_path / "Height_TRAIN.tsv", height=3.0)
    assert build(TrainConfig, completed({"data": data, "recipe": "paper"}), "train").notes == []
    assert completed({"data": "waves:100"}).get("notes", []) == []
    assert completed({"data": "waves:100"})["backbone"] == "dilated-small"
