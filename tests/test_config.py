"""Configurations: what built-in data bring with them, values of the wrong kind, and the recipes."""

import re
from pathlib import Path
from typing import Any

import pytest

from nearfar.config import TrainConfig, completed, kind_of
from nearfar.methods import METHODS
from nearfar.modalities.image.modality import ImageModality
from nearfar.settings import build
from nearfar.training.build_method import build_method
from tests.support.facts import facts

RECIPES = Path(__file__).parent.parent / "recipes"


def test_glyphs_bring_a_whole_recipe_and_own_data_none() -> None:
    config = build(TrainConfig, completed({}), "train")
    assert (config.data.path, config.views.preset, config.backbone) == ("glyphs", "shapes", "strokes")
    assert config.options == ImageModality.defaults("glyphs")["options"] and config.optimizer.name == "muon"
    assert build(TrainConfig, completed({"data": "photos/"}), "train") == TrainConfig(data="photos/")


def test_what_is_asked_for_comes_first() -> None:
    asked = {"data": "glyphs:99", "views": "simclr", "options": {"temperature": 0.5}, "optimizer": {"clip_norm": 1.0}}
    config = build(TrainConfig, completed(asked), "train")
    assert config.views.preset == "simclr" and config.optimizer.clip_norm == 1.0 and config.optimizer.name == "muon"
    assert config.options == {**ImageModality.defaults("glyphs")["options"], "temperature": 0.5}
    assert ImageModality.defaults("glyphs")["options"]["temperature"] == 0.2, "the recipe itself was changed"


def test_options_stay_with_their_method_and_rates_with_their_optimizer() -> None:
    assert build(TrainConfig, completed({"method": "byol"}), "train").options == {}
    assert build(TrainConfig, completed({"optimizer": {"name": "sgd"}}), "train").optimizer.lr is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": "two"}, "epochs 'two'"),
        ({"epochs": True}, "epochs True"),
        ({"optimizer": 3}, "optimizer 3"),
        ({"optimizer": {"lr": "fast"}}, "optimizer lr 'fast'"),
        ({"optimizer": {"lr": -1}}, "optimizer.lr -1.0 0"),
        ({"precision": 16}, "precision 16 '32' 'bf16' 'fp16'"),
        ({"data": None}, "data path None text"),
        ({"data": " "}, "data.path empty"),
        ({"options": []}, "options []"),
        ({"pretrained": True, "weights": "a.pt"}, "pretrained weights 'a.pt'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=facts(said)):
        build(TrainConfig, given, "train")


def test_what_is_meant_is_taken() -> None:
    """YAML reads 1e-3 as text, and 32 as a number."""
    given = {"data": Path("photos"), "precision": 32, "optimizer": {"lr": "1e-3", "clip_norm": 1}}
    config = build(TrainConfig, given, "train")
    assert (config.data.path, config.precision) == ("photos", "32")
    assert (config.optimizer.lr, config.optimizer.clip_norm) == (1e-3, 1.0)


ADAPTED = {"cifar10-adapted", "clothing_small-adapted", "clinc150-minilm", "emoji4-towers", "stsb-minilm"}


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_can_be_built(path: Path) -> None:
    config = TrainConfig.from_yaml(path)
    if path.stem in ADAPTED:  # the backbone follows from the weights and the data
        assert config.weights is not None and config.weights.startswith("package:")
        return
    assert path.stem in (f"{re.split('[:/]', config.data.path)[0]}-{config.method}", f"ucr-{config.method}")
    assert build_method(config, samples=4096).encoder is not None


def test_every_method_has_a_recipe() -> None:
    assert {path.stem for path in RECIPES.glob("cifar10-*.yaml")} - ADAPTED == {
        f"cifar10-{method}" for method in METHODS if kind_of("", method, None) == "image"
    }
    assert {path.stem for path in RECIPES.glob("ucr-*.yaml")} == {"ucr-cpc", "ucr-simclr"}


def test_options_are_named_by_texts(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("options: {0: 1}\n")
    with pytest.raises(ValueError, match="options has the key 0"):
        TrainConfig.from_yaml(tmp_path / "run.yaml")
    with pytest.raises(ValueError, match="simclr has no option 0"):
        build_method(TrainConfig(options={0: 1}), samples=5)  # type: ignore[dict-item]


def test_a_switch_of_a_method_is_true_or_false() -> None:
    config = TrainConfig(method="instdisc", options={"noise_per_sample": "sometimes"})
    with pytest.raises(ValueError, match=facts("--options.noise_per_sample sometimes")):
        build_method(config, samples=5)


@pytest.mark.parametrize(
    "given", [{"backbone": "transformers:no-one/bert"}, {"text": {"encoder": "transformers:no-one/bert"}}]
)
def test_the_encoder_of_sentences_is_stored_by_both_of_its_names(given: dict[str, Any]) -> None:
    config = build(TrainConfig, completed({"data": "lines.txt", "method": "simcse", **given}), "test")
    assert config.backbone == config.text.encoder == "transformers:no-one/bert"
    plain = build(TrainConfig, completed({"data": "lines.txt", "method": "simcse"}), "test")
    assert plain.backbone == plain.text.encoder
