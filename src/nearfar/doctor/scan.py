"""One pass over all images without an encoder: whether they can be read, their size, and a small copy."""

import hashlib
import io
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from nearfar.data.dataset import Skipped, label_names
from nearfar.data.pack import cores
from nearfar.modalities.image.data.decode import opened, rgb, why
from nearfar.modalities.image.data.source import ImageSource, as_picture
from nearfar.progress import progress_bar

SIDE = 16  # pixels of the small copy
PLAIN = 2  # of 255: an image whose values differ by no more is plain
AHEAD = 256  # images in the queue of the threads
HASHED = 64  # pixels of the copy whose frequencies are hashed
_COSINES = np.cos(np.pi * np.outer(np.arange(SIDE), 2 * np.arange(HASHED) + 1) / (2 * HASHED))  # (16, 64)
BLOCK = 16_384  # small copies turned into vectors at a time


@dataclass(frozen=True)
class ScannedImage:
    """What is known about one readable image."""

    row: int  # in its source
    digest: bytes  # of the file, or of the pixels where there is no file
    width: int
    height: int
    plain: bool  # one colour everywhere
    pages: int  # or frames, of which the first is read
    small: NDArray[np.uint8]  # (16, 16, 3)
    hash: bytes  # 256 bits, of its 16 × 16 lowest frequencies


@dataclass(frozen=True)
class Scan:
    """All images of a source: K readable ones, and the others."""

    source: ImageSource
    images: list[ScannedImage]
    broken: list[Skipped]

    def names(self) -> list[str]:
        """Of the K readable images."""
        return [self.source.names[image.row] for image in self.images]

    def labels(self) -> list[str | None]:
        """K class names, None where there is none."""
        return label_names(self.source.labels, self.source.classes, [image.row for image in self.images])


class PixelVectors:
    """Small copies as rows of 768 numbers, each channel minus its mean, so that brightness does not count.

    Their cosine ignores contrast too. It recognizes other sizes, formats and compression, but not crops, mirroring or
    rotation.
    """

    dim = 3 * SIDE**2

    def __init__(self, images: Sequence[ScannedImage]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, len(self.images), BLOCK):
            small = np.stack([image.small for image in self.images[start : start + BLOCK]])
            x = torch.from_numpy(small).float().flatten(1, 2)  # (C, 256, 3)
            yield start, (x - x.mean(1, keepdim=True)).flatten(1)


def scan(source: ImageSource, *, label: str | bool, workers: int | None = None) -> Scan:
    """Read every image of a source once; `label` as in `progress_bar`.

    Files are read in threads; Python objects in one, unless more are asked for: data sets of others may not be made for
    several.
    """
    workers = workers or (1 if source.transient else cores())
    source.load_all()
    images, broken = [], list(source.skipped)
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(workers) as pool,
        progress_bar(label, len(source)) as advance,
    ):
        warnings.simplefilter("ignore")  # Pillow's, about files that it reads nonetheless
        for start in range(0, len(source), AHEAD):
            rows = range(start, min(start + AHEAD, len(source)))
            for row, found in zip(rows, pool.map(lambda row: _scan_row(source, row), rows), strict=True):
                if isinstance(found, ScannedImage):
                    images.append(found)
                else:
                    broken.append(Skipped(source.names[row], found))
            advance(len(rows))
    return Scan(source, images, broken)


def _scan_row(source: ImageSource, row: int) -> ScannedImage | str:
    """What is known about the image, or why it cannot be read."""
    try:
        if source.paths is None:
            picture = source.items[row]
            if isinstance(picture, bytes):
                with opened(io.BytesIO(picture)) as member:
                    return _scan_image(row, member, hashlib.blake2b(picture, digest_size=16).digest())
            image = picture if isinstance(picture, Image.Image) else as_picture(picture)
            return _scan_image(row, image, hashlib.blake2b(np.asarray(picture).tobytes(), digest_size=16).digest())
        with source.paths[row].open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
            file.seek(0)
            with opened(file) as image:
                return _scan_image(row, image, digest)
    except Exception as error:  # Pillow raises errors of every kind on broken files
        return why(error)


def thumbnail(source: ImageSource, row: int, side: int) -> NDArray[np.uint8] | None:
    """The whole image at (side, side, 3), whatever its shape; None if it cannot be read."""
    try:
        item = source.paths[row] if source.paths is not None else source.items[row]
        if isinstance(item, bytes | Path):
            with opened(item if isinstance(item, Path) else io.BytesIO(item)) as image:
                if image.format == "JPEG":
                    image.draft(None, (4 * side, 4 * side))
                return _resized(image, side)
        return _resized(item if isinstance(item, Image.Image) else as_picture(item), side)
    except Exception:  # Pillow raises errors of every kind on broken files
        return None


def _resized(image: Image.Image, side: int) -> NDArray[np.uint8]:
    return np.asarray(rgb(ImageOps.exif_transpose(image)).resize((side, side), Image.Resampling.BOX), np.uint8)


def _scan_image(row: int, image: Image.Image, digest: bytes) -> ScannedImage:
    (width, height), pages = image.size, getattr(image, "n_frames", 1)
    if image.format == "JPEG":
        image.draft(None, (4 * SIDE, 4 * SIDE))
    upright = rgb(ImageOps.exif_transpose(image))
    small = np.asarray(upright.resize((SIDE, SIDE), Image.Resampling.BOX), np.uint8)
    extrema: Any = upright.getextrema() if int(np.ptp(small.reshape(-1, 3), axis=0).max()) <= PLAIN else [(0, 255)]
    plain = max(high - low for low, high in extrema) <= PLAIN
    return ScannedImage(row, digest, width, height, plain, pages, small, perceptual_hash(upright))


def perceptual_hash(image: Image.Image) -> bytes:
    """256 bits: which of the 16 × 16 lowest frequencies of the gray image are above their median.

    Equal up to a few bits after re-encoding, resizing or a small watermark; about half of the bits differ otherwise.
    """
    gray = np.asarray(image.convert("L").resize((HASHED, HASHED), Image.Resampling.BOX), np.float64)
    frequencies = (_COSINES @ gray @ _COSINES.T).ravel()
    frequencies[0] = 0  # brightness
    return np.packbits(frequencies > np.median(frequencies)).tobytes()


def differing_bits(a: bytes, b: bytes) -> int:
    return (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()
