"""Kinds of data: one trainer and one set of methods for all of them."""

from collections.abc import Callable

from torch import Tensor

from nearfar.config import TrainConfig
from nearfar.data import Dataset
from nearfar.modalities.images import Images
from nearfar.modalities.modality import Modality
from nearfar.modalities.pairs import Pairs
from nearfar.modalities.series import Series
from nearfar.modalities.sounds import Sounds
from nearfar.modalities.texts import Texts
from nearfar.views.part import Part

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


def views_in_parts(
    modality: Modality,
    samples: Tensor,
    source: Dataset,
    index: Tensor,
    *,
    seed: int,
    step: int,
    part: Part | None = None,
) -> Callable[[slice], list[Tensor]]:
    """Rows of a batch to what `modality.views` has in these rows.

    Views of images, many times larger than the samples, are made when they are asked for. Those of series, sounds and
    texts are about as large as the samples, and some mix sounds of the whole batch: they are made at once.
    """
    if isinstance(modality, Images):
        return modality.views_in_parts(samples, source, index, seed=seed, step=step, part=part)
    whole = modality.views(samples, source, index, seed=seed, step=step, part=part)
    return lambda rows: [view[rows] for view in whole]


__all__ = [
    "MODALITIES",
    "Images",
    "Modality",
    "Pairs",
    "Series",
    "Sounds",
    "Texts",
    "modality_of",
    "settled",
    "views_in_parts",
]
