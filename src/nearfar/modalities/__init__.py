"""Kinds of data: one trainer and one set of methods for all of them."""

from collections.abc import Callable

from nearfar.config import TrainConfig
from nearfar.modalities.images import Images
from nearfar.modalities.modality import Modality
from nearfar.modalities.pairs import Pairs
from nearfar.modalities.sounds import Sounds
from nearfar.modalities.texts import Texts

MODALITIES: dict[str, Callable[[TrainConfig], Modality]] = {
    "image": Images,
    "image-text": Pairs,
    "sound": Sounds,
    "text": Texts,
}


def modality_of(config: TrainConfig) -> Modality:
    """The kind of data that a run is on."""
    return MODALITIES[config.kind](config)


__all__ = ["MODALITIES", "Images", "Modality", "Pairs", "Sounds", "Texts", "modality_of"]
