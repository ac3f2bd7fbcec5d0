"""Kinds of data: one trainer and one set of methods for all of them."""

from collections.abc import Callable

from nearfar.config import TrainConfig
from nearfar.modalities.images import Images
from nearfar.modalities.modality import Modality
from nearfar.modalities.pairs import Pairs
from nearfar.modalities.series import Series
from nearfar.modalities.sounds import Sounds
from nearfar.modalities.texts import Texts

MODALITIES: dict[str, Callable[[TrainConfig], Modality]] = {
    "image": Images,
    "image-text": Pairs,
    "series": Series,
    "sound": Sounds,
    "text": Texts,
}


def modality_of(config: TrainConfig) -> Modality:
    """The kind of data that a run is on."""
    return MODALITIES[config.kind](config)


def settled(config: TrainConfig) -> TrainConfig:
    """The configuration with what only its data can say, so that the run folder is complete without them."""
    return Series.settled(config) if config.kind == "series" else config


__all__ = ["MODALITIES", "Images", "Modality", "Pairs", "Series", "Sounds", "Texts", "modality_of", "settled"]
