"""Thumbnails side by side in one compressed image, which a page can embed."""

import io
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

_BYTES = 2_000_000  # of a sheet, by lower quality as far as possible


def paste_grid(
    pictures: Sequence[NDArray[np.uint8]] | NDArray[np.uint8], columns: int, *, margin: int = 0, below: int = 0
) -> Image.Image:
    """(S, S, 3) pictures row by row, on white where there is a margin or room for captions below each."""
    side = pictures[0].shape[0]
    width, height = side + margin, side + below + margin
    size = columns * width + margin, -(-len(pictures) // columns) * height + margin
    sheet = Image.new("RGB", size, "white" if margin else "black")
    for place, picture in enumerate(pictures):
        y, x = divmod(place, columns)
        sheet.paste(Image.fromarray(picture), (margin + x * width, margin + y * height))
    return sheet


def sheet_columns(count: int) -> int:
    """How many thumbnails are in a row of a sheet.

    >>> [sheet_columns(n) for n in (1, 4, 5, 2000)]
    [1, 2, 3, 45]
    """
    return math.isqrt(count - 1) + 1


def make_sheet(pictures: NDArray[np.uint8]) -> bytes:
    """(N, S, S, 3) thumbnails as a WebP, or a JPEG where Pillow has no WebP."""
    image, content = paste_grid(pictures, sheet_columns(len(pictures))), b""
    for quality in (80, 60, 40, 20):
        file = io.BytesIO()
        if features.check("webp"):
            image.save(file, "WEBP", quality=quality, method=2)
        else:
            image.save(file, "JPEG", quality=quality)
        content = file.getvalue()
        if len(content) <= _BYTES:
            break
    return content


def sheet_side(content: bytes, count: int) -> int:
    """Pixels of each thumbnail; an error where this is not a sheet of so many."""
    with Image.open(io.BytesIO(content), formats=("WEBP", "JPEG")) as image:
        width, height = image.size
    columns = sheet_columns(count)
    side = width // columns
    if side < 1 or (width, height) != (columns * side, -(-count // columns) * side):
        raise ValueError(f"a sheet of {width} × {height} pixels, expected {count} square thumbnails")
    return side
