"""What built-in data bring with them, and what they leave alone."""

from nearfar.config import BUILT_IN, TrainConfig, build, completed


def test_glyphs_bring_a_whole_recipe_and_own_data_none() -> None:
    config = build(TrainConfig, completed({}), "train")
    assert (config.data, config.views, config.backbone) == ("glyphs", "shapes", "strokes")
    assert config.options == BUILT_IN["glyphs"]["options"] and config.optimizer.name == "adamw"
    assert build(TrainConfig, completed({"data": "photos/"}), "train") == TrainConfig(data="photos/")


def test_what_is_asked_for_comes_first() -> None:
    asked = {"data": "glyphs:99", "views": "simclr", "options": {"temperature": 0.5}, "optimizer": {"clip": 1.0}}
    config = build(TrainConfig, completed(asked), "train")
    assert config.views == "simclr" and config.optimizer.clip == 1.0 and config.optimizer.name == "adamw"
    assert config.options == {**BUILT_IN["glyphs"]["options"], "temperature": 0.5}
    assert BUILT_IN["glyphs"]["options"]["temperature"] == 0.2, "the recipe itself was changed"


def test_options_stay_with_their_method_and_rates_with_their_optimiser() -> None:
    assert build(TrainConfig, completed({"method": "byol"}), "train").options == {}
    assert build(TrainConfig, completed({"optimizer": {"name": "sgd"}}), "train").optimizer.lr is None
