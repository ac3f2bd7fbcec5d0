"""Kinds of data: one trainer and one set of methods for all of them."""

from nearfar.config import TrainConfig
from nearfar.modalities.images import Images
from nearfar.modalities.modality import Modality


def modality_of(config: TrainConfig) -> Modality:
    """The kind of data that a run is on."""
    return Images(config)


__all__ = ["Images", "Modality", "modality_of"]
