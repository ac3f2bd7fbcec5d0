"""What a user gives to `Encoder.encode`, as items by number or as a data set."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.data.python_data import is_loader, object_data
from nearfar.data.python_items import is_array
from nearfar.data.python_tables import as_frame, path_column
from nearfar.messages import one_line
from nearfar.modalities.base import Modality


def as_items(items: Any, modality: Modality, kind: str | None = None) -> tuple[Any, bool]:
    """Items by number, and whether a single one was given.

    Takes one item (a path, a text, a PIL image, bytes, an open file, one image as an array), a sequence of them, a
    tensor or array of samples, a frame with a column of paths or texts, a data set, a function that returns an
    iterator, or a folder, which becomes a `Dataset`.
    """
    items = items.dataset if is_loader(items) else items
    if isinstance(items, str | Path) and modality.walks_folders and Path(items).expanduser().is_dir():
        return modality.reading(modality.read_config_of(str(items))).open_to_embed(str(items)), False
    if isinstance(items, str | Path | bytes) or hasattr(items, "convert") or hasattr(items, "seek"):
        return [items], True  # the last two are of a PIL image and of an open file
    if is_array(items):
        return modality.from_array(items if isinstance(items, Tensor) else np.asarray(items), kind)
    if isinstance(items, Dataset) or (isinstance(items, list) and not any(isinstance(x, dict | tuple) for x in items)):
        return items, False
    if (frame := as_frame(items)) is not None:
        columns = frame[0]
        texts = (name for name, values in columns.items() if any(isinstance(each, str) for each in values))
        column = path_column(columns) or next(texts, None)
        if column is None:
            raise ValueError(f"the frame has the columns {', '.join(columns)}, expected one of paths or texts")
        if (
            empty := next((row for row, each in enumerate(columns[column]) if not isinstance(each, str | Path)), None)
        ) is not None:
            raise ValueError(f"row {empty} of the column {column!r} is empty, expected a path or a text in each row")
        return columns[column], False
    return items if isinstance(items, tuple) else object_data(items).samples, False


def some_items(items: Any, start: int, stop: int) -> Any:
    """Items `start` to `stop`; of a data set that takes numbers alone, one by one."""
    if isinstance(items, list | tuple | Tensor | np.ndarray):
        return items[start:stop]
    found = []
    for row in range(start, min(stop, len(items))):
        try:
            found.append(items[row])
        except Exception as error:  # of the user's own code
            raise ValueError(f"item {row} cannot be read: {one_line(error)}") from error
    return found
