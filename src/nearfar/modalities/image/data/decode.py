"""Any picture file as a square RGB array, or a line that says why not."""

import math
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, features

HEIF = frozenset({".heic", ".heif"})  # of phones; pillow-heif reads them
SUFFIXES = HEIF | {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif"}
# What is read. Pillow knows more: it would hand PostScript in a file called `photo.jpg` to a program, Ghostscript.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "HEIF")
# Photos of kinds that are not read, but told of.
UNREAD = frozenset(
    {".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".jp2", ".jxl", ".psd", ".ppm", ".pgm"}
)
NOT_FINITE = "it has values that are not finite (NaN or infinity)"
PIXEL_LIMIT = 178_956_970  # where Pillow itself cries decompression bomb
VERSION = 3  # part of every cache key; raise it when the same file comes out with other pixels


def decode(
    file: Path | BinaryIO, size: int, *, pixel_limit: int = PIXEL_LIMIT, formats: tuple[str, ...] | None = None
) -> NDArray[np.uint8]:
    """The file's (first) picture as (size, size, 3), upright; short side to `size`, then the middle.

    Args:
        formats: Pillow's names of those that may be read; None: all of `FORMATS`.

    Raises:
        OSError, ValueError and whatever else Pillow raises: `why` turns it into a line.
    """
    with opened(file, formats, pixel_limit=pixel_limit) as image:
        width, height = image.size
        if image.format == "JPEG" and min(width, height) > 2 * size:
            # The JPEG decoder can halve as it decodes; twice the size is left for the antialiasing below.
            factor = 2 * size / min(width, height)
            image.draft(None, (round(width * factor), round(height * factor)))
        return squared(image, size)


def opened(
    file: Path | BinaryIO, formats: tuple[str, ...] | None = None, *, pixel_limit: int = PIXEL_LIMIT
) -> Image.Image:
    """A picture not yet decoded, its first page or frame; a kind that needs another package is named.

    Every picture that nearfar reads is opened here, so that kinds and pixels have one limit.
    """
    if isinstance(file, Path) and file.exists() and not file.is_file():
        raise ValueError("a folder, a device or a pipe, expected a file")  # a pipe would be waited for without end
    try:
        image = Image.open(file, formats=readable_formats() if formats is None else formats)
        width, height = image.size
        # A JPEG is made smaller as it is decoded; others are decoded whole, of real numbers in float64.
        if image.format != "JPEG" and pixel_limit < PIXEL_LIMIT:
            pixel_limit //= 4
        if width * height > pixel_limit:
            image.close()
            raise ValueError(f"{width}×{height} pixels are more than the limit of {pixel_limit:,}")
        return image
    except UnidentifiedImageError:
        kind = Path(file if isinstance(file, Path) else str(getattr(file, "name", ""))).suffix.lower()
        if kind in HEIF and not read_heif():
            raise ValueError("a HEIC image needs pillow-heif: pip install 'nearfar[heic]'") from None
        if kind == ".avif" and not features.check("avif"):
            raise ValueError("an AVIF image needs Pillow 11.3 or newer") from None
        raise


@cache
def readable_formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this Pillow can read."""
    read_heif()
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


@cache
def read_heif() -> bool:
    """Let Pillow read HEIC, if the package for that is there."""
    try:
        from pillow_heif import register_heif_opener  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return False
    register_heif_opener()
    return True


def squared(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """(size, size, 3): upright, in RGB, the middle square, resized with antialiasing."""
    image = rgb(ImageOps.exif_transpose(image))
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    if side != size:
        box = (left, top, left + side, top + side)
        image = image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)
    elif image.width != image.height:
        image = image.crop((int(left), int(top), int(left) + side, int(top) + side))
    return np.asarray(image, np.uint8)


def rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB: wide numbers scaled to 8 bits, not clipped, and the transparent laid on white."""
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        image = Image.fromarray(eight_bits(np.asarray(image)))
    if image.has_transparency_data:
        color = image.convert("RGBA")
        white = Image.new("RGBA", color.size, "white")
        return Image.alpha_composite(white, color).convert("RGB")
    return image.convert("RGB")


def eight_bits(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Whole or real numbers as bytes: [0, 255] is kept, real [0, 1] is stretched, and of 10, 12, 14 or 16 bits, the
    fewest that hold the greatest value, the highest 8 stay: cameras store 12 bits in files of 16.

    Anything else is stretched from its least to its greatest value, for want of a stated range. NaN and infinity are
    no brightness: which one would be right is not known.
    """
    wide = values.astype(np.float64)
    least, most = float(wide.min()), float(wide.max())
    if not (math.isfinite(least) and math.isfinite(most)):  # NaN in any pixel is NaN here
        raise ValueError(NOT_FINITE)
    if values.dtype.kind == "f" and least >= 0 and most <= 1:
        wide = np.round(wide * 255)
    elif least < 0 or most > 65535:
        wide = np.round((wide - least) * (255 / (most - least)))
    elif most > 255:
        bits = next(bits for bits in (10, 12, 14, 16) if most < 1 << bits)
        wide = wide // (1 << bits - 8)
    return wide.astype(np.uint8)


def why(error: Exception) -> str:
    """The reason a picture could not be read, in a line."""
    if isinstance(error, UnidentifiedImageError):
        return f"not an image of a kind that is read ({', '.join(FORMATS)})"
    if isinstance(error, FileNotFoundError):
        return "file not found"
    if isinstance(error, Image.DecompressionBombError):
        return "more pixels than the limit: a decompression bomb?"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if not isinstance(error, OSError | ValueError) else text
