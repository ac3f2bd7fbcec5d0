"""The pictures behind rows of embeddings, by their names."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from nearfar.messages import one_line
from nearfar.modalities.base import Modality
from nearfar.modalities.named_samples import NamedSamples
from nearfar.search.location import Location

GRAY = 200

Picture = NDArray[np.uint8]


def thumbnails(
    modality: Modality, names: Sequence[str], where: Location, *, size: int
) -> tuple[list[Picture], list[str]]:
    """The pictures of the samples with these names, and why some cannot be shown: those are plain gray.

    A name that leads out of the folder of the data is refused: a file of embeddings may come from anyone.

    Args:
        modality: reads and draws the samples.
        names: K texts, as `Embeddings.names` gives them.
        where: the samples are.
        size: side of each picture.

    Raises:
        ValueError: where the data cannot be found.
    """
    samples = modality.find(*where, side=size)
    try:
        samples.open()
    except (OSError, ValueError, RuntimeError) as error:
        way = "" if where.data is None else "; give --data"
        raise ValueError(f"the {modality.noun} cannot be shown: {one_line(error)}{way}") from None
    pictures, missing = [], []
    for name in names:
        try:
            pictures.append(picture_of(samples, name, size))
        except Exception as error:  # decoders raise errors of every kind on broken files
            pictures.append(np.full((size, size, 3), GRAY, np.uint8))
            missing.append(f"{name}: {one_line(error)}")
    return pictures, missing


def picture_of(samples: NamedSamples, name: str, size: int) -> Picture:
    """(size, size, 3) of the sample of that name."""
    if not samples.modality.has_pictures:
        raise ValueError(f"{samples.modality.noun} have no picture")
    return thumbnail(samples.modality, samples.read(name), size)


def query_picture(modality: Modality, item: Any, size: int) -> Picture:
    """(size, size, 3) of an item of the user's."""
    reading = modality.reading(replace(modality.config.data, stored_size=size))
    return thumbnail(reading, reading.read(item), size)


def thumbnail(modality: Modality, sample: Tensor, size: int) -> Picture:
    """(size, size, 3) of one raw sample."""
    found = modality.thumbnails(sample[None], size)
    if found is None:
        raise ValueError(f"{modality.noun} have no picture")
    picture = Image.fromarray(found[0])
    return np.asarray(picture if picture.width == size else picture.resize((size, size), Image.Resampling.LANCZOS))
