"""Thumbnails side by side in one compressed picture: a page holds thousands of them for the price of one."""

import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

_BUDGET = 2_000_000  # bytes of a sheet, as long as a coarser one is still a picture


def sheet_columns(count: int) -> int:
    """How many thumbnails are in a row of a sheet.

    >>> [sheet_columns(n) for n in (1, 4, 5, 2000)]
    [1, 2, 3, 45]
    """
    return math.isqrt(count - 1) + 1


def make_sheet(pictures: NDArray[np.uint8]) -> bytes:
    """(N, S, S, 3) thumbnails, row by row, as a WebP, or a JPEG where Pillow has no WebP."""
    n, side = pictures.shape[:2]
    columns = sheet_columns(n)
    rows = -(-n // columns)
    cells = np.zeros((rows * columns, side, side, 3), np.uint8)
    cells[:n] = pictures
    pixels = cells.reshape(rows, columns, side, side, 3).swapaxes(1, 2).reshape(rows * side, columns * side, 3)
    image, content = Image.fromarray(pixels), b""
    for quality in (80, 60, 40, 20):
        file = io.BytesIO()
        if features.check("webp"):
            image.save(file, "WEBP", quality=quality, method=2)
        else:
            image.save(file, "JPEG", quality=quality)
        content = file.getvalue()
        if len(content) <= _BUDGET:
            break
    return content


def sheet_side(content: bytes, count: int) -> int:
    """The side of each of so many thumbnails; an error where that is not the sheet of so many."""
    with Image.open(io.BytesIO(content), formats=("WEBP", "JPEG")) as image:
        width, height = image.size
    columns = sheet_columns(count)
    side = width // columns
    if side < 1 or (width, height) != (columns * side, -(-count // columns) * side):
        raise ValueError(f"a sheet of {width} × {height} pixels, expected one of {count} thumbnails")
    return side
