"""Samples that are already arrays: .npz and .npy files."""

import math
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from nearfar.data.columns import label_column
from nearfar.modalities.image.data.source import ImageSource
from nearfar.safe_read import opened_npz

IMAGES = ("x", "images", "data", "arr_0")
LABELS = ("y", "labels", "targets", "arr_1")
# What zipfile raises on broken archives: of a password or an unknown method RuntimeError and NotImplementedError.
ARCHIVE = (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, NotImplementedError)


def array_source(
    path: Path, *, labels: bool | None = None, classes: Sequence[str] | None = None, split: str | None = None
) -> ImageSource:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) uint8, and labels (N,), by their usual names.

    With a split, "x_train" or "train_images" (Keras, MedMNIST) are looked for, and not "x" or "images".
    """
    members = [""] if path.suffix.lower() == ".npy" else _members(path)
    images = "" if members == [""] else _find(members, IMAGES, split)
    if images is None:
        shown = ", ".join(repr(member) for member in members) or "none"
        wanted = f"'x_{split}' or '{split}_images'" if split else " or ".join(map(repr, IMAGES))
        raise ValueError(f"{path} has the arrays {shown}, expected images called {wanted}; is the split right?")
    shape = _shape(path, images)
    height, width, _ = picture_shape(shape, f"{path}: {images}" if images else str(path))
    named = None if members == [""] or labels is False else _find(members, LABELS, split)
    if labels and named is None:
        raise ValueError(f"{path} has no array of labels, expected one called {' or '.join(LABELS)}")
    values = None if named is None else _load(path, named)
    if values is not None and values.size != shape[0]:
        raise ValueError(f"{path} has {shape[0]} images and labels of shape {values.shape}, expected one for each")
    numbers, found = (None, None) if values is None else label_column(values.reshape(-1).tolist(), classes)
    state = path.stat()
    return ImageSource(
        description=f"arrays {path}" + (f" ({images})" if images else ""),
        names=[str(i) for i in range(shape[0])],
        load=lambda: channels_last(_load(path, images)),
        version=f"{state.st_size} {state.st_mtime_ns}",
        labels=numbers,
        classes=found,
        size=height if height == width else None,
    )


def picture_shape(shape: tuple[int, ...], what: str) -> tuple[int, int, bool]:
    """Height and width of the pictures, and whether channels come first."""
    if len(shape) == 3:
        return shape[1], shape[2], False
    if len(shape) == 4 and shape[3] in (1, 3, 4):
        return shape[1], shape[2], False
    if len(shape) == 4 and shape[1] in (1, 3, 4):
        return shape[2], shape[3], True
    raise ValueError(f"{what} has shape {shape}, expected (N, H, W), (N, H, W, C) or (N, C, H, W) with C of 1, 3 or 4")


def channels_last(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(N, H, W) or (N, H, W, C), whichever of the three forms it had."""
    return images.transpose(0, 2, 3, 1) if picture_shape(images.shape, "the array")[2] else images


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as file:
            return [name.removesuffix(".npy") for name in file.namelist()]
    except (*ARCHIVE, EOFError, ValueError):
        raise ValueError(f"{path} is not an .npz file; write it with numpy.savez") from None


def _find(members: Sequence[str], usual: Sequence[str], split: str | None) -> str | None:
    wanted = [f"{name}_{split}" for name in usual] + [f"{split}_{name}" for name in usual] if split else usual
    return next((name for name in wanted if name in members), None)


def _shape(path: Path, member: str) -> tuple[int, ...]:
    """From the header alone, without unpacking the array."""
    if not member:
        with path.open("rb") as file:
            return _header(path, file, path.stat().st_size)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{member}.npy") as inner:
            stated = archive.getinfo(f"{member}.npy").file_size
            return _header(path, inner, stated)  # type: ignore[arg-type]  # a zip member reads as a binary file
    except (*ARCHIVE, EOFError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {member} cannot be read: {' '.join(str(error).split())}") from None


def _header(path: Path, file: BinaryIO, size: int) -> tuple[int, ...]:
    """The shape that a header of a file of `size` bytes states, if so many bytes are there."""
    try:
        version = npy.read_magic(file)
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, kind = reader(file)
    except Exception as error:  # numpy reads the header as Python: SyntaxError, TokenError, …
        raise ValueError(f"{path} is not a readable array: {' '.join(str(error).split())}") from None
    if kind != np.uint8:
        raise ValueError(
            f"{path} has images of type {kind}, expected uint8: save (255 * x).round()."
            "astype('uint8'); if they are series, say --modality series"
        )
    if min(shape, default=1) < 1 or file.tell() + math.prod(shape) > size:
        raise ValueError(f"{path} states images of shape {_words(shape)}, but is {size:,} bytes long: it is cut short")
    return tuple(shape)


def _words(shape: Sequence[int]) -> str:
    return str(tuple(shape)) if all(-(10**18) < n < 10**18 for n in shape) else "beyond any"


def _load(path: Path, member: str) -> NDArray[np.uint8]:
    if not member:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    try:
        with opened_npz(path) as arrays:
            return np.asarray(arrays[member])
    except Exception as error:  # of the archive, of the header, of the memory
        raise ValueError(f"{path}: {member} cannot be read: {' '.join(str(error).split())}") from None
