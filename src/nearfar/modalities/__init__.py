"""Kinds of data. Each is one folder behind the contract of `nearfar.modalities.base.Modality`.

Adding one: a folder here, and a line in `MODALITIES`. A modality is imported when it is first used.
"""

from collections.abc import Callable
from importlib import import_module

from torch import Tensor

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.modalities.base import Modality
from nearfar.nn.part import Part

MODALITIES = {
    "image": "nearfar.modalities.image.modality:Images",
    "image-text": "nearfar.modalities.image_text.modality:Pairs",
    "series": "nearfar.modalities.series.modality:Series",
    "sound": "nearfar.modalities.sound.modality:Sounds",
    "text": "nearfar.modalities.text.modality:Texts",
}


def modality_of(config: TrainConfig) -> Modality:
    """The modality of a run's data."""
    module, _, name = MODALITIES[config.kind].partition(":")
    made: Modality = getattr(import_module(module), name)(config)
    return made


def settled(config: TrainConfig) -> TrainConfig:
    """The configuration with what only its data can say, so that the run folder is complete without them."""
    from nearfar.modalities.series.modality import Series

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
    from nearfar.modalities.image.modality import Images

    if isinstance(modality, Images):
        return modality.views_in_parts(samples, source, index, seed=seed, step=step, part=part)
    whole = modality.views(samples, source, index, seed=seed, step=step, part=part)
    return lambda rows: [view[rows] for view in whole]
