"""A picture of the user's as a query for a file of embeddings."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data import decoding_size
from nearfar.data.decode import decode, why
from nearfar.embeddings.files import Embeddings
from nearfar.export.model import Encoder


def embed_image(encoder: Encoder, file: Embeddings, image: Path) -> Tensor:
    """(1, F): the picture, decoded as the file's were, seen by the encoder that made them.

    Raises:
        ValueError: where the file says that another encoder made it.
    """
    stated = file.about.get("encoder")
    if stated is not None and stated != encoder.digest():
        raise ValueError(f"{file.path} was made by another encoder than this; embed the data again with this run")
    size = file.about.get("size")
    side = size if isinstance(size, int) and 1 <= size <= 4096 else decoding_size(encoder.preparation.size)
    picture = torch.from_numpy(picture_of(image, side).copy())  # (S, S, 3)
    return encoder.embed(picture.permute(2, 0, 1)[None])


def picture_of(image: Path, side: int) -> NDArray[np.uint8]:
    """(side, side, 3), or a line that says why not."""
    try:
        return decode(image.expanduser(), side)
    except Exception as error:  # Pillow raises of every kind on broken files
        raise ValueError(f"{image} cannot be read as a picture: {why(error)}") from None
