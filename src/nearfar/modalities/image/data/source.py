"""Images before any of them is decoded."""

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nearfar.data.retry import retried
from nearfar.data.sources import Source
from nearfar.modalities.image.data.decode import decode, squared


@dataclass(frozen=True, eq=False)
class ImageSource(Source):
    """Image files, or pictures in memory: arrays (H, W) or (H, W, C) uint8, Pillow images, or bytes of a file."""

    def read(self, index: int, size: int) -> NDArray[np.uint8]:
        """Sample `index` as (size, size, 3); raises what `decode.why` can explain."""
        if self.paths is not None:
            path = self.paths[index]
            return retried(lambda: decode(path, size))
        image = self.items[index]
        if isinstance(image, bytes):
            return decode(io.BytesIO(image), size)
        return squared(image if isinstance(image, Image.Image) else as_picture(image), size)


def as_picture(image: NDArray[np.uint8]) -> Image.Image:
    """(H, W), (H, W, 1), (H, W, 3) or (H, W, 4)."""
    return Image.fromarray(image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image)
