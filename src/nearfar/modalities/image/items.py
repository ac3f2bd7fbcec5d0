"""Single images, for `encode`, search and the explorer: read from anywhere, drawn as thumbnails."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from nearfar.modalities.base import Modality
from nearfar.modalities.image.data.decode import decode, squared, why
from nearfar.modalities.image.data.hugging_face import TableRows
from nearfar.modalities.image.data.opening import decoding_size, find_images
from nearfar.modalities.image.data.python_images import array_as_bytes, brightness_scale, undecoded
from nearfar.modalities.image.data.source import as_picture
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.modalities.named_samples import SamplesByRow, checked

UPLOADED = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")


def image_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    """(S, S, 3) to (3, S, S), a copy."""
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


class ImageItems(Modality):
    """The part of the images' modality that is about single items.

    Attributes:
        preparation: what an image goes through outside of training.
    """

    preparation: Preparation

    @property
    def decode_side(self) -> int:
        """Pixels at which single images are decoded, the same as in training."""
        return self.config.data.stored_size or decoding_size(self.preparation.size)

    def read(self, item: Any, kind: str | None = None) -> Tensor:
        """(3, S, S) uint8."""
        if isinstance(item, Image.Image):
            return image_tensor(squared(item, self.decode_side))
        if isinstance(item, np.ndarray | Tensor):
            return self._from_array(item, self.decode_side)
        if isinstance(item, str | Path):
            return self._decoded(Path(item).expanduser(), str(item))
        if isinstance(item, bytes) or hasattr(item, "read"):
            return self._decoded(io.BytesIO(item) if isinstance(item, bytes) else item, "the image")
        raise TypeError(f"an item is a {type(item).__name__}, expected a path, a PIL image, an array or a tensor")

    def read_upload(self, content: bytes, *, pixels: int, seconds: float) -> Tensor:
        return self._decoded(io.BytesIO(content), "it", pixel_limit=pixels, formats=UPLOADED)

    def _decoded(self, file: Path | BinaryIO, what: str, **limits: Any) -> Tensor:
        try:
            return image_tensor(decode(file, self.decode_side, **limits))
        except Exception as error:  # Pillow raises errors of every kind on broken files
            raise ValueError(f"{what} cannot be read as a picture: {why(error)}") from None

    def _from_array(self, item: NDArray[Any] | Tensor, side: int) -> Tensor:
        return image_tensor(squared(as_picture(undecoded(item, brightness_scale([item], "an image"))), side))

    def from_array(self, samples: NDArray[Any] | Tensor, kind: str | None = None) -> tuple[Any, bool]:
        """Images of any usual shape; a tensor (B, 3, H, W) is of raw samples, taken at its own size."""
        shape = tuple(samples.shape)
        if len(shape) == 0 or shape[0] == 0:
            return [], False
        if len(shape) == 2 or (len(shape) == 3 and (shape[2] in (1, 3, 4) or shape[0] in (1, 3, 4))):
            return [samples], True
        if isinstance(samples, Tensor):
            scale = (
                255.0 if samples.dtype == torch.uint8 and samples.numel() else brightness_scale([samples], "the tensor")
            )
            if len(shape) == 4 and shape[1] == 3 and (samples.dtype == torch.uint8 or scale == 255.0):
                return samples, False
            samples = samples.detach().cpu().numpy()
        return array_as_bytes(samples), False

    def batch(self, items: Sequence[Any] | NDArray[Any], kind: str | None = None) -> Tensor:
        return super().batch(list(items), kind)

    def check_batch(self, samples: Tensor, kind: str) -> Tensor:
        if kind == "image" and (samples.ndim != 4 or samples.shape[1] != 3):
            raise ValueError(f"images have shape {tuple(samples.shape)}, expected (B, 3, H, W)")
        return samples

    def run_encoder(self, network: nn.Module, x: Tensor, kind: str) -> Tensor:
        if kind == "image" and not x.is_floating_point():  # images as they are
            raise TypeError(f"the encoder was given {x.dtype}, expected prepared images; encode(images) prepares them")
        return super().run_encoder(network, x, kind)

    def source(self, spec: str, split: str | None = None) -> SamplesByRow:
        source = find_images(spec, replace(self.config.data, groups_file=None), split=split)

        def read(row: int, root: Path | None) -> Tensor:
            items = None if source.paths is not None else source.items
            path = None if source.paths is None else source.paths[row]
            if isinstance(items, TableRows):
                path = items.path_of(row)
            if path is None:
                return image_tensor(source.read(row, self.decode_side))
            assert root is not None
            return self.read(checked(root, path))

        return SamplesByRow(source.names, read)

    def thumbnails(self, samples: Tensor, side: int) -> NDArray[np.uint8]:
        x = samples
        if x.shape[-1] > side:
            x = F.interpolate(x.float(), size=(side, side), mode="area").round().to(torch.uint8)
        pixels: NDArray[np.uint8] = x.permute(0, 2, 3, 1).contiguous().cpu().numpy()
        return pixels
