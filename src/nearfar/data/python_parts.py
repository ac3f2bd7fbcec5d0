"""Data in parts: splits by name, columns by name, and samples with their labels."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.data.python_items import SAMPLES, TARGETS, is_array
from nearfar.data.rows import CAPTIONS, usual_column

TEST_PARTS = ("test", "validation", "valid", "val")  # of splits by name, the first that is there


def named_parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Splits by name, such as a DatasetDict of Hugging Face, as the keys path and test; columns, such as those of an
    .npz file, as samples and labels; other keys as they are.

    >>> named_parts({"train": "a/", "validation": "b/"}), named_parts({"path": "a/", "strict": True})
    ({'path': 'a/', 'test': 'b/'}, {'path': 'a/', 'strict': True})
    """
    if "train" not in data:
        columns = _samples_and_labels(data)
        return dict(data) if columns is None else {"path": columns}
    test = next((data[name] for name in TEST_PARTS if name in data), None)
    return {"path": data["train"], **({} if test is None else {"test": test})}


def _samples_and_labels(data: Mapping[str, Any]) -> Any:
    """A column of samples, with that of labels if there is one; None of what has no such columns, or others."""
    sample, label = (usual_column(map(str, data), usual) for usual in ((*SAMPLES, "images", *CAPTIONS), TARGETS))
    columns = [data[name] for name in (sample, label) if name is not None]
    if sample is None or len(columns) < len(data) or set(data) == {"path"}:
        return None
    if not all(hasattr(column, "__len__") and not isinstance(column, str) for column in columns):
        return None  # such as the settings {"path": "photos/", "labels": "leaf"}
    return columns[0] if label is None else tuple(columns)


def refuse_other_labels(data: Any) -> None:
    """Tell of (samples, labels) whose labels are of another number, or more than one for each sample."""
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[1], list | np.ndarray | Tensor):
        return
    if not isinstance(data[0], list) and not (is_array(data[0]) and data[0].ndim > 2):
        return
    try:
        labels = np.asarray(data[1])
    except ValueError:  # lists of several lengths
        return
    if labels.shape == (len(data[0]),):
        return
    if labels.ndim in (1, 2) and labels.dtype.kind in "biufU" and len(data[0]):
        raise ValueError(
            f"labels have shape {labels.shape} for {len(data[0])} samples, expected ({len(data[0])},), a number or a "
            "name for each; of columns of 0 and 1 give labels.argmax(1)"
        )
