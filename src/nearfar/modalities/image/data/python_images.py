"""Images that are Python objects: arrays, tensors, Pillow images, and data sets of these."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from nearfar.data.columns import label_column
from nearfar.data.config import ReadConfig
from nearfar.data.dataset import ArrayDataset, Skipped
from nearfar.data.python_data import ObjectData
from nearfar.data.sources import Items, MadeItems
from nearfar.modalities.image.data.arrays import channels_last, picture_shape
from nearfar.modalities.image.data.decode import NOT_FINITE, eight_bits, opened, why
from nearfar.modalities.image.data.source import ImageSource
from nearfar.modalities.image.data.stream import StreamDataset
from nearfar.progress import progress_bar
from nearfar.python_objects import find_object
from nearfar.safe_read import physical_memory

DARKEST = 16.0  # real numbers between 1 and this are no brightness: as those up to 255 they would be black
LOOKED_AT = 16  # samples, evenly spaced, whose range of values and size are looked at
_MANY = 1000  # samples, from which reading them shows a progress bar
_SHARE = 4  # decoded images may take this part of the memory; more are decoded at each look


def object_source(
    spec: str, read: ReadConfig, *, split: str | None = None, classes: Sequence[str] | None = None
) -> ImageSource:
    """The images of a registered object, before any of them is resized.

    Values are uint8, whole numbers from 0 to 255 or of up to 16 bits, or real numbers from 0 to 1 (or to 255, if any is
    above 1).
    """
    data: ObjectData = find_object(spec, "data")
    if split is not None:
        raise ValueError(f"{spec} has no split {split!r}; give the parts as data={{'path': ..., 'test': ...}}")
    labels, captions = data.facts()
    numbers, names = _numbered(data, None if read.labels is False else labels, classes)
    items: Items
    size, version = None, uuid.uuid4().hex
    if data.array is not None:
        items = array_as_bytes(data.array)
        size = int(items.shape[1]) if items.shape[1] == items.shape[2] else None
        version = hashlib.blake2b(np.ascontiguousarray(items).data, digest_size=12).hexdigest()
    else:
        scale = brightness_scale(_some(data), spec)
        items = MadeItems(len(data), lambda row: undecoded(data.samples[row], scale))
        items[data.first_row]  # what is no image at all is told before anything else happens
    return ImageSource(
        description=spec,
        names=list(map(str, range(len(data)))),
        load=lambda: items,
        version=version,
        labels=numbers,
        classes=names,
        captions=captions,
        size=size,
        transient=True,
    )


def _numbered(
    data: ObjectData, labels: Sequence[Any] | None, classes: Sequence[str] | None
) -> tuple[Tensor | None, list[str] | None]:
    if labels is None:
        return None, None
    if data.classes is not None and classes is None:  # numbers with names
        return torch.tensor([-1 if each is None else each for each in labels]), list(data.classes)
    if data.classes is not None:
        labels = [None if each is None else data.classes[each] for each in labels]
    return label_column(labels, classes)


def array_as_bytes(images: NDArray[Any]) -> NDArray[np.uint8]:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) of any numbers to uint8, channels last."""
    picture_shape(images.shape, "the array")
    if images.dtype != np.uint8 or images.size == 0:
        if images.dtype.kind == "f" and images.size and not is_finite(images):
            bad = next(row for row, image in enumerate(images) if not is_finite(image))
            raise ValueError(f"image {bad} of the array: {NOT_FINITE}; leave it out, or mend it")
        scale = brightness_scale([images], "the array")
        if images.dtype.kind in "iu" and images.size and images.max() > 255:
            images = np.stack([scaled(image, scale) for image in images])
        else:
            images = np.concatenate([scaled(part, scale) for part in np.array_split(images, -(-len(images) // 1024))])
    return channels_last(images)


def _some(data: ObjectData) -> list[Any]:
    """A few samples; one that cannot be read is told when it is decoded."""
    found = [data.first]
    for row in np.linspace(data.first_row, len(data) - 1, min(LOOKED_AT, len(data))).astype(int)[1:]:
        with suppress(Exception):  # of the user's own code
            found.append(data.samples[int(row)])
    return found


def brightness_scale(samples: Sequence[Any], what: str) -> float:
    """What real numbers are multiplied by to become bytes; refuses those that are no brightness."""
    arrays = [_as_array(each) for each in samples if isinstance(each, np.ndarray | Tensor)]
    wrong = next((each for each in arrays if each.size == 0 or each.dtype.kind not in "buif"), None)
    if wrong is not None:
        raise ValueError(f"{what} is of shape {wrong.shape} and type {wrong.dtype}, expected pixels as real numbers")
    numbers = [each for each in arrays if each.dtype != np.uint8]
    if not numbers:
        return 255.0
    if not (numbers := [each for each in numbers if is_finite(each)]):  # of several, the others are left out later
        raise ValueError(f"{what}: {NOT_FINITE}, expected pixels as real numbers")
    least, most = min(float(each.min()) for each in numbers), max(float(each.max()) for each in numbers)
    whole = all(each.dtype.kind in "iu" for each in numbers)
    unclear = 1 + 1e-3 < most < DARKEST and any(each.dtype.kind == "f" and (each % 1).any() for each in numbers)
    if unclear or not (least >= -1e-3 and most <= (65535 if whole else 255.5)):
        raise ValueError(
            f"{what} has values from {least:.3g} to {most:.3g}, expected whole numbers from 0 to 255, those of up to "
            "16 bits, or real ones from 0 to 1; leave out Normalize: nearfar normalizes images itself"
        )
    return 1.0 if whole or most > 1.0 + 1e-3 else 255.0


def scaled(image: NDArray[Any], scale: float) -> NDArray[np.uint8]:
    """Numbers as bytes; of whole ones above 255 the highest 8 bits, as a file of 16 bits is read."""
    if image.dtype == np.uint8:
        return image
    if image.dtype == np.bool_:
        return image.astype(np.uint8) * np.uint8(255)
    if image.dtype.kind in "iu" and image.max(initial=0) > 255:
        return eight_bits(image)
    if not is_finite(image):
        raise ValueError(NOT_FINITE)
    found: NDArray[np.uint8] = np.clip(np.round(image.astype(np.float32) * scale), 0, 255).astype(np.uint8)
    return found


def is_finite(image: NDArray[Any]) -> bool:
    """Whether real numbers hold no NaN and no infinity: either would come out as the least or the greatest."""
    return image.dtype.kind != "f" or bool(np.isfinite(image.min(initial=0)) and np.isfinite(image.max(initial=0)))


def undecoded(sample: Any, scale: float = 255.0) -> Any:
    """A sample as `ImageSource.read` takes it: an array (H, W) or (H, W, C) uint8, a Pillow image or bytes."""
    if isinstance(sample, Image.Image | bytes):
        return sample
    if isinstance(sample, Mapping) and {"bytes", "path"} <= set(sample):  # of Hugging Face
        sample = sample["bytes"] or sample["path"]
    if isinstance(sample, str | Path):
        return Path(sample).expanduser().read_bytes()
    if isinstance(sample, np.ndarray | Tensor):
        array = _as_array(sample)
        if array.ndim not in (2, 3) or (array.ndim == 3 and not {array.shape[0], array.shape[2]} & {1, 3, 4}):
            raise ValueError(f"an image has shape {array.shape}, expected (H, W), (H, W, C) or (C, H, W), C: 1, 3 or 4")
        return channels_last(scaled(array, scale)[None])[0]
    if isinstance(sample, bytes):
        return sample
    raise TypeError(
        f"a sample is a {type(sample).__name__}, expected a PIL image, an array, a tensor, bytes or a path; items may "
        "be (image, label) or a dict with the key 'image'"
    )


def _as_array(sample: NDArray[Any] | Tensor) -> NDArray[Any]:
    return sample.detach().cpu().numpy() if isinstance(sample, Tensor) else sample


def is_picture(sample: Any) -> bool:
    """Whether a sample in memory is an image: of Pillow, bytes of a file, or an array of its shape.

    >>> is_picture(np.zeros((8, 8, 3))), is_picture(np.zeros((2, 90), np.float32)), is_picture(np.zeros((8, 8)))
    (True, False, True)
    """
    if isinstance(sample, Image.Image | bytes | Mapping):
        return True
    if not isinstance(sample, np.ndarray | Tensor) or sample.ndim not in (2, 3):
        return False
    array = _as_array(sample)
    if array.ndim == 3:
        return array.shape[2] in (1, 3, 4) or array.shape[0] in (1, 3, 4)
    return array.dtype.kind in "ub" or (array.shape[0] == array.shape[1] and float(array.min()) >= 0)


def typical_side(spec: str) -> tuple[int, int]:
    """How many images an object has, and the median of the shorter sides of a few."""
    data: ObjectData = find_object(spec, "data")
    sides = [min(_width_and_height(undecoded(each))) for each in _some(data)]
    return len(data), round(median(sides))


def _width_and_height(image: Any) -> tuple[int, int]:
    if isinstance(image, np.ndarray):
        return image.shape[1], image.shape[0]
    if isinstance(image, bytes):
        import io

        with opened(io.BytesIO(image)) as picture:
            return picture.size
    size: tuple[int, int] = image.size
    return size


def decoded_in_memory(
    source: ImageSource, size: int, *, strict: bool, workers: int | None, stream: bool
) -> ArrayDataset | StreamDataset:
    """The images of objects at one size, in memory; decoded at each look if they do not fit, or if that is asked for.

    The cache keeps none: it cannot tell whether an object of tomorrow is the same.
    """
    needed = len(source) * 3 * size**2
    if stream or needed > physical_memory() / _SHARE:
        return StreamDataset(source, size, strict=strict, workers=workers or 1)
    images = np.empty((len(source), size, size, 3), np.uint8)
    failed: dict[int, Skipped] = {}

    def read(row: int) -> None:
        try:
            images[row] = source.read(row, size)
        except Exception as error:  # of Pillow, and of the user's own code
            if strict:
                raise ValueError(f"sample {row} of {source.description} cannot be read: {why(error)}") from error
            failed[row] = Skipped(source.names[row], why(error))

    source.load_all()
    # One thread unless more are asked for: data sets of others may not be made for several.
    with (
        progress_bar(len(source) > _MANY and f"reading at {size} px", len(source)) as advance,
        ThreadPoolExecutor(workers or 1) as pool,
    ):
        for _ in pool.map(read, range(len(source))):
            advance(1)
    if len(failed) == len(source):
        raise ValueError(f"none of the {len(source)} samples can be read; the first: {failed[0].reason}")
    kept = np.setdiff1d(np.arange(len(source)), np.array(sorted(failed), np.int64))
    return ArrayDataset(images, rows=kept, **source.facts(torch.from_numpy(kept), [*failed.values()]))
