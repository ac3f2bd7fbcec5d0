"""One look at every picture, without an encoder: can it be read, how large is it, what is in it, roughly."""

import hashlib
import io
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from nearfar.data.dataset import Skipped
from nearfar.data.pack import cores
from nearfar.data.sources import Source, as_picture
from nearfar.modalities.image.data.decode import PIXEL_LIMIT, rgb, why
from nearfar.search.progress import bar

SIDE = 16  # of the small picture that stands for the large one
EVEN = 2  # of 255: a picture whose values span no more is even
AHEAD = 256  # pictures in the queue of the threads


@dataclass(frozen=True)
class Seen:
    """What a look at one readable picture tells."""

    row: int  # in its source
    digest: bytes  # of the file, or of the pixels where there is none
    width: int
    height: int
    even: bool  # one colour all over
    small: NDArray[np.uint8]  # (16, 16, 3), the whole picture


@dataclass(frozen=True)
class Looked:
    """All pictures of a source: K that can be read, and the others."""

    source: Source
    seen: list[Seen]
    broken: list[Skipped]

    def names(self) -> list[str]:
        """K texts."""
        return [self.source.names[one.row] for one in self.seen]

    def labels(self) -> list[str | None]:
        """K class names, None where there is none."""
        if self.source.labels is None:
            return [None] * len(self.seen)
        numbers, classes = self.source.labels.tolist(), self.source.classes
        found = [numbers[one.row] for one in self.seen]
        return [None if n < 0 else str(n) if classes is None else classes[n] for n in found]


class PixelVectors:
    """Small pictures as rows of 768 numbers: each channel minus its mean, so that brightness does not count.

    The cosine between them is blind to contrast too. It sees through other sizes, formats and compression, not
    through crops, mirroring or rotation.
    """

    dim = 3 * SIDE**2

    def __init__(self, seen: Sequence[Seen]) -> None:
        self.seen = seen

    def __len__(self) -> int:
        return len(self.seen)

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, len(self.seen), 16_384):
            small = np.stack([one.small for one in self.seen[start : start + 16_384]])
            x = torch.from_numpy(small).float().flatten(1, 2)  # (C, 256, 3)
            yield start, (x - x.mean(1, keepdim=True)).flatten(1)


def look(source: Source, *, words: str, progress: bool = True, workers: int | None = None) -> Looked:
    """Read every picture of a source once, in threads."""
    if source.paths is None:
        _ = source.images  # loaded here, once, and not by every thread
    seen, broken = [], list(source.skipped)
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(workers or cores()) as pool,
        bar(progress, words, len(source)) as advance,
    ):
        warnings.simplefilter("ignore")  # of Pillow, about files it reads nonetheless
        for start in range(0, len(source), AHEAD):
            rows = range(start, min(start + AHEAD, len(source)))
            for row, found in zip(rows, pool.map(lambda row: _look(source, row), rows), strict=True):
                if isinstance(found, Seen):
                    seen.append(found)
                else:
                    broken.append(Skipped(source.names[row], found))
            advance(len(rows))
    return Looked(source, seen, broken)


def _look(source: Source, row: int) -> Seen | str:
    try:
        if source.paths is None:
            picture = source.images[row]
            if isinstance(picture, bytes):
                with Image.open(io.BytesIO(picture)) as member:
                    return _seen(row, member, hashlib.blake2b(picture, digest_size=16).digest())
            image = picture if isinstance(picture, Image.Image) else as_picture(picture)
            return _seen(row, image, hashlib.blake2b(np.asarray(picture).tobytes(), digest_size=16).digest())
        with source.paths[row].open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
            file.seek(0)
            with Image.open(file) as image:
                return _seen(row, image, digest)
    except Exception as error:  # Pillow raises of every kind on broken files
        return why(error)


def _seen(row: int, image: Image.Image, digest: bytes) -> Seen:
    width, height = image.size
    if width * height > PIXEL_LIMIT:
        raise ValueError(f"{width}×{height} pixels are more than the limit of {PIXEL_LIMIT:,}")
    if image.format == "JPEG":
        image.draft(None, (4 * SIDE, 4 * SIDE))
    upright = rgb(ImageOps.exif_transpose(image))
    small = np.asarray(upright.resize((SIDE, SIDE), Image.Resampling.BOX), np.uint8)
    extrema: Any = upright.getextrema() if int(np.ptp(small.reshape(-1, 3), axis=0).max()) <= EVEN else [(0, 255)]
    return Seen(row, digest, width, height, max(high - low for low, high in extrema) <= EVEN, small)
