"""Rows of a table by number: numbers as they are, texts as numbers that stand for them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from nearfar.data.columns import group_column, label_column
from nearfar.data.config import ReadConfig
from nearfar.data.dataset import Dataset, Facts, Skipped
from nearfar.data.python_data import ObjectData
from nearfar.data.rows import GROUPS, LABELS, find_column
from nearfar.data.tables import READERS, read_columns
from nearfar.python_objects import find_object, is_object
from nearfar.safe_read import opened_npz

ARRAYS, ARRAY_LABELS = ("x", "X", "data", "arr_0"), ("y", "labels", "target", "arr_1")
SUFFIXES = (".npz", *READERS)
_MISSING = {"", "?", "nan", "na", "null", "none"}
LARGEST = float(np.finfo(np.float32).max)  # a larger one would be infinite
_FINITE = "expected finite numbers that float32 holds; leave a value out where there is none"
_CODES = 1 << 24  # whole numbers that float32 holds exactly


class TableDataset(Dataset):
    """N rows of C columns.

    Args:
        values: (N, C) float32: numbers, or `code_of` a text; NaN where a value is missing.
        header: names of the columns.
        texts: which of them hold texts.
        facts: labels, classes, groups, names.
    """

    columns = ("values",)

    def __init__(self, values: Tensor, header: Sequence[str], texts: Sequence[bool], **facts: Unpack[Facts]) -> None:
        if values.ndim != 2 or not values.numel() or values.shape[1] != len(header):
            raise ValueError(f"a table has shape {tuple(values.shape)}, expected (N, {len(header)}), one row or more")
        self.values, self.header, self.of_texts = values.float(), list(header), list(texts)
        self.size = len(self.header)
        self.describe(**facts)

    def __len__(self) -> int:
        return len(self.values)

    def fetch(self, indices: Tensor) -> Tensor:
        """(B,) int64 to (B, C) float32."""
        return self.values[indices.cpu()]


def open_table(spec: str, read: ReadConfig, classes: Sequence[str] | None = None) -> TableDataset:
    """The rows of a file or of an object in memory.

    Args:
        spec: a table with a header (`.csv`, `.tsv`, `.jsonl`, `.parquet`), every column but labels and groups being a
            feature; or `.npz` with `x` (N, C) and labels `y`.
    """
    if is_object(spec):
        data: ObjectData = find_object(spec, "data")
        given = np.stack(data.as_arrays())
        return _of_array(spec, given, data.facts()[0], read, classes)
    path = Path(spec).expanduser()
    if not path.is_file() or path.suffix.lower() not in SUFFIXES:
        raise FileNotFoundError(f"there is no table {str(path)!r}, expected one of {', '.join(SUFFIXES)}")
    if path.suffix.lower() == ".npz":
        with opened_npz(path) as stored:
            x = next((stored[name] for name in ARRAYS if name in stored), None)
            y = next((stored[name].tolist() for name in ARRAY_LABELS if name in stored), None)
        if x is None:
            raise ValueError(f"{path} has no array {' or '.join(ARRAYS)}, expected the rows (N, C) in it")
        return _of_array(str(path), np.asarray(x), y, read, classes)
    columns, where = read_columns(path), str(path)
    labels = None if read.labels is False else find_column(columns, "label", read.label_column, LABELS, where)
    groups = find_column(columns, "group", read.group_column, GROUPS, where)
    features = {name: cells for name, cells in columns.items() if cells is not labels and cells is not groups}
    if not features:
        raise ValueError(f"{path} has no column beside labels and groups, expected numbers or texts to learn from")
    encoded = [_column(cells, f"{name[:60]!r} of {path}") for name, cells in features.items()]
    numbers, names = (None, None) if labels is None else label_column(labels, classes)
    table = TableDataset(
        torch.tensor([values for values, _ in encoded], dtype=torch.float64).T,
        list(features),
        [of_texts for _, of_texts in encoded],
        labels=numbers,
        classes=names,
        groups=None if groups is None else group_column(groups),
    )
    return _without_empty(table, where, read)


def _of_array(
    where: str, x: Any, labels: Sequence[Any] | None, read: ReadConfig, classes: Sequence[str] | None
) -> TableDataset:
    if x.ndim != 2 or x.dtype.kind not in "iufb":
        raise ValueError(f"rows of {where} are {x.dtype} of shape {x.shape}, expected real numbers (N, C)")
    if len(bad := np.argwhere(np.abs(x.astype(np.float64)) > LARGEST)):
        row, column = map(int, bad[0])
        raise ValueError(f"{where} has {x[row, column]} in row {row}, column {column}, {_FINITE}")
    numbers, names = (None, None) if labels is None or read.labels is False else label_column(labels, classes)
    header = [str(i) for i in range(x.shape[1])]
    values = torch.from_numpy(x.astype(np.float64))
    data = TableDataset(values, header, [False] * len(header), labels=numbers, classes=names)
    return _without_empty(data, where, read)


def _without_empty(data: TableDataset, where: str, read: ReadConfig) -> TableDataset:
    """Rows without any value say nothing, and all look the same: they are left out and listed."""
    empty = data.values.isnan().all(1)
    rows = empty.nonzero()[:, 0].tolist()
    if rows and (read.strict or len(rows) == len(data)):
        raise ValueError(f"row {rows[0]} of {where} has no values, expected some in each row")
    if not rows:
        return data
    kept = data.subset((~empty).nonzero()[:, 0])
    kept.skipped = [*data.skipped, *(Skipped(f"row {row}", "it has no values") for row in rows)]
    return kept


def _column(cells: Sequence[object], where: str) -> tuple[list[float], bool]:
    """The cells as numbers, and whether these stand for texts: of a column with a cell that is no number."""
    found = [number_of(cell) for cell in cells]
    if any(number is None for number in found):
        return [float("nan") if _absent(cell) else float(code_of(str(cell))) for cell in cells], True
    numbers = [float("nan") if number is None else number for number in found]
    bad = next((row for row, number in enumerate(numbers) if abs(number) > LARGEST), None)
    if bad is not None:
        raise ValueError(f"the column {where} has {str(cells[bad])[:40]} in row {bad}, {_FINITE}")
    return numbers, False


def number_of(cell: object) -> float | None:
    """NaN for what is missing, None for what is no number."""
    if _absent(cell):
        return float("nan")
    try:
        return float(cell)  # type: ignore[arg-type]
    except OverflowError:  # a whole number of hundreds of digits
        return float("inf")
    except (TypeError, ValueError):
        return None


def code_of(text: str) -> int:
    """A number that stands for a text, the same in every table.

    >>> code_of("red") == code_of(" red ") != code_of("blue")
    True
    """
    return (
        int.from_bytes(hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=8).digest(), "little")
        % _CODES
    )


def _absent(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in _MISSING)
