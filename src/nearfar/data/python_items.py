"""One item of a data set, of any usual shape: its sample, its label and its caption."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.data.rows import CAPTIONS, LABELS, PATHS, usual_column

SAMPLES = ("image", "img", "pixel_values", "pixels", "audio", "series", "x", "data", "input", *PATHS)
TARGETS = (*LABELS, "labels", "targets", "fine_label", "y")


def split_item(item: Any) -> tuple[Any, Any, Any]:
    """Sample, label and caption of an item of a data set: the sample alone, a tuple that begins with it, or a dict.

    >>> split_item(("a.jpg", 3)), split_item({"image": "a.jpg", "caption": "a cat"}), split_item("a.jpg")
    (('a.jpg', 3, None), ('a.jpg', None, 'a cat'), ('a.jpg', None, None))
    """
    if isinstance(item, Mapping):
        if set(item) == {"bytes", "path"}:
            return item, None, None
        key = usual_column(map(str, item), SAMPLES)
        if key is None:
            raise ValueError(f"an item has the keys {', '.join(map(repr, item))}, expected one of {', '.join(SAMPLES)}")
        label, caption = (usual_column(map(str, item), usual) for usual in (TARGETS, CAPTIONS))
        return item[key], plain_label(item.get(label)), item.get(caption)
    if isinstance(item, tuple | list) and item:
        second = item[1] if len(item) > 1 else None
        caption = second if isinstance(second, str) else None
        return item[0], plain_label(second), caption
    return item, None, None


def plain_label(value: Any) -> Any:
    """A label as a number or a text; None of what is no single label, such as boxes or several classes.

    >>> import torch
    >>> plain_label(torch.tensor(3)), plain_label("cat"), plain_label([0, 1]), plain_label(0.5)
    (3, 'cat', None, None)
    """
    if isinstance(value, np.ndarray | np.generic | Tensor) and value.ndim == 0:
        value = value.item()
    return value if isinstance(value, int | str) else None


def is_array(data: Any) -> bool:
    """A numpy array, a tensor, or another library's array, of numbers."""
    if not all(hasattr(data, name) for name in ("shape", "dtype", "__array__")) or len(data.shape) == 0:
        return False
    return isinstance(data, Tensor) or np.asarray(data).dtype.kind not in "OSU"
