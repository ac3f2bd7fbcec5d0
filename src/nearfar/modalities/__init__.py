"""Kinds of data. Each is one folder behind the contract of `nearfar.modalities.base.Modality`.

Adding one: a folder here, and a line in `MODALITIES`. It is imported when it is first used. One from outside
the package is named as MODULE:NAME.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names

if TYPE_CHECKING:
    from nearfar.config import TrainConfig
    from nearfar.modalities.base import Modality, Splits
    from nearfar.modalities.baseline import Baseline
    from nearfar.modalities.named_samples import NamedSamples

__all__ = ["MODALITIES", "Baseline", "Modality", "NamedSamples", "Splits", "make_modality", "modality_class"]
__getattr__ = lazy_names(
    __name__,
    {"Baseline": "baseline", "Modality": "base", "NamedSamples": "named_samples", "Splits": "base"},
)

MODALITIES = {
    "image": "nearfar.modalities.image.modality:ImageModality",
    "image-text": "nearfar.modalities.image_text.modality:ImageTextModality",
    "series": "nearfar.modalities.series.modality:SeriesModality",
    "sound": "nearfar.modalities.sound.modality:SoundModality",
    "sound-text": "nearfar.modalities.sound_text.modality:SoundTextModality",
    "table": "nearfar.modalities.table.modality:TableModality",
    "text": "nearfar.modalities.text.modality:TextModality",
}


def modality_class(name: str) -> "type[Modality]":
    """The class of a modality, by its name or as MODULE:NAME."""
    if name not in MODALITIES and ":" not in name:
        raise ValueError(f"modality is {name!r}, expected one of {', '.join(MODALITIES)}, or MODULE:NAME")
    if name not in MODALITIES:
        from nearfar.modalities.base import Modality
        from nearfar.plugins import import_string

        return import_string(name, Modality, "modality")  # type: ignore[type-abstract]
    module, _, attribute = MODALITIES[name].partition(":")
    found: type[Modality] = getattr(import_module(module), attribute)
    return found


def make_modality(config: "TrainConfig") -> "Modality":
    """The modality of a run's data."""
    return modality_class(config.kind)(config)
