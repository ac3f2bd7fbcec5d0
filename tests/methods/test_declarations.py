"""What a method declares on its class is all that the package knows of it, and what it declares is there."""

import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import nearfar
from nearfar.config import TrainConfig, completed
from nearfar.methods import METHODS, Method, SimCLR, choose_views
from nearfar.modalities import MODALITIES
from nearfar.modalities.image.views.presets import PRESETS
from nearfar.modalities.series.views import SERIES_PRESETS
from nearfar.modalities.sound.presets import SOUND_PRESETS
from nearfar.settings import build

KNOWN = {
    "image": PRESETS,
    "image-text": PRESETS,
    "series": SERIES_PRESETS,
    "sound": SOUND_PRESETS,
    "sound-text": SOUND_PRESETS,
}
# Outside of methods/ a quoted name may be that of a loss, a preset of views or a foreign model, or be a default.
OTHER_MEANINGS = {
    "config.py": {"simclr", "clip"},  # the default method; optimizer.clip_norm
    "losses/__init__.py": {"barlow_twins", "cosent", "vicreg"},
    "losses/ranking.py": {"cosent"},
    "cli/check.py": {"pairs"},  # --pairs
    "cli/mine.py": {"pairs"},  # the table of pairs
    "report/sample_sections.py": {"pairs"},  # a class of the page
    "modalities/image/views/presets.py": {"byol", "clip", "cmc", "instdisc", "moco_v1", "moco_v3", "simclr", "supcon"},
    "modalities/sound/views.py": {"byol_a", "cpc", "simclr"},
    "modalities/table/views.py": {"scarf"},
    "modalities/text/modality.py": {"mlm"},  # an option
    "modalities/image/huggingface.py": {"clip", "siglip"},  # kinds of models of transformers
    "model/foreign/huggingface.py": {"clip", "siglip"},
    "weights/huggingface.py": {"clip", "siglip"},
}


@pytest.mark.parametrize("name", METHODS)
def test_modalities_and_views_are_known(name: str) -> None:
    kind = METHODS[name]
    assert kind.name == name and kind.modalities and set(kind.modalities) <= set(MODALITIES)
    assert 1 <= kind.min_views <= (kind.max_views or kind.min_views)
    assert kind.usual_views is None or kind.usual_views >= kind.min_views
    assert {*kind.default_views, *kind.settings} <= set(MODALITIES)
    for modality in set(kind.modalities) & set(KNOWN):
        assert kind.views_of(modality) in KNOWN[modality]


@pytest.mark.parametrize("name", METHODS)
def test_its_own_views_are_as_many_as_it_uses(name: str) -> None:
    kind = METHODS[name]
    for modality in {"image", "series"} & set(kind.modalities):
        given: tuple[int, ...] = (32,) if modality == "image" else ()
        preset = kind.views_of(modality)
        made = KNOWN[modality][preset](*given)
        chosen = choose_views(name, preset, made)
        assert chosen == list(made)[: kind.usual_views]


@pytest.mark.parametrize("name", METHODS)
def test_options_have_defaults_and_build_the_method(name: str) -> None:
    options = METHODS[name].options()
    assert not {"self", "encoder", "features", "samples", "options"} & set(options)
    assert not [option for option, default in options.items() if isinstance(default, type)]  # Parameter.empty is one
    method, batches = METHODS[name].toy()
    again = METHODS[name](method.encoder, features=16, samples=64, **{**options, **METHODS[name].toy_options})
    assert type(again) is METHODS[name] and len(batches) == 2


def test_a_variant_has_the_options_of_its_parent() -> None:
    class Sharper(SimCLR):
        def __init__(self, encoder: nn.Module, *, temperature: float = 0.05, **options: Any) -> None:
            super().__init__(encoder, temperature=temperature, **options)

    class Alone(SimCLR):
        def __init__(self, encoder: nn.Module, *, features: int, samples: int = 0, sharpness: float = 2.0) -> None:
            super().__init__(encoder, features=features, temperature=1 / sharpness)

    assert Sharper.options() == {**SimCLR.options(), "temperature": 0.05}
    assert Alone.options() == {"sharpness": 2.0}
    assert isinstance(Alone.toy()[0], Alone)  # with those of SimCLR's small widths that it has: none
    assert Method.options() == {}


def quoted(text: str) -> set[str]:
    """Names of methods that stand as texts in a file, examples in docstrings left out."""
    text = re.sub(r"^ *>>> .*$", "", text, flags=re.MULTILINE)
    return {name for name in METHODS if re.search(rf"[\"']{name}[\"'](?!,? epochs)", text)}


def test_no_table_is_keyed_by_the_names_of_methods() -> None:
    package = Path(nearfar.__file__).parent
    for file in package.rglob("*.py"):
        place = file.relative_to(package)
        if place.parts[0] not in ("methods", "recipes"):
            found = quoted(file.read_text(encoding="utf-8")) - OTHER_MEANINGS.get(place.as_posix(), set())
            assert not found, f"{place} names {sorted(found)}: declare it on the method's class"


def test_the_search_for_names_finds_one() -> None:
    assert quoted('if config.method == "moco_v1":') == {"moco_v1"}
    assert quoted("    >>> kind_of('', 'clip', None)") == set()


OUTSIDE = """
from nearfar.methods import Method, SimCLR

class OfTexts(SimCLR):
    modalities = ("text",)
    settings = {"text": {"epochs": 3}}

class OfSounds(SimCLR):
    modalities = ("sound", "image")
    default_views = {"sound": "cola"}
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "declared_outside.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_method_from_outside_declares_its_modality_settings_and_views(outside: None) -> None:
    texts: TrainConfig = build(TrainConfig, completed({"data": "lines.csv", "method": "declared_outside:OfTexts"}), "")
    assert (texts.kind, texts.modality, texts.epochs, texts.backbone) == ("text", "text", 3, "text-tiny")
    sounds = completed({"data": "elsewhere", "method": "declared_outside:OfSounds"})
    assert (sounds["modality"], sounds["views"]["preset"], sounds["backbone"]) == ("sound", "cola", "audio-tiny")
    glyphs = completed({"method": "declared_outside:OfSounds", "modality": "image", "epochs": 1})
    assert (glyphs["modality"], glyphs["views"]["preset"]) == ("image", "shapes")  # the data's own, as for every method
    assert "options" not in glyphs


def test_a_configuration_imports_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_imported.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert TrainConfig(method="never_imported:Mine").kind == "image"
