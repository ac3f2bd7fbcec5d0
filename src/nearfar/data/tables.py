"""Tables of samples: CSV, TSV, JSON lines or Parquet, one row a sample."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from nearfar.data.columns import group_column, label_column, nearest

Columns = dict[str, list[object]]

PATHS = ("path", "image", "file", "filename", "file_name", "filepath", "image_path")
LABELS = ("label", "class", "category", "target")
GROUPS = ("group", "group_id")
SPLITS = ("split",)


@dataclass(frozen=True, eq=False)
class Table:
    """N rows: paths as written in the table, and labels and groups where it has them."""

    names: list[str]
    labels: Tensor | None
    classes: list[str] | None
    groups: Tensor | None


def read(
    path: Path,
    path_name: str | None = None,
    label_name: str | None = None,
    group_name: str | None = None,
    *,
    split: str | None = None,
    labels: bool | None = None,
    classes: Sequence[str] | None = None,
) -> Table:
    """The table's samples; column names that are None are looked for among the usual ones."""
    try:
        columns = READERS[path.suffix.lower()](path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    files = _column(path, columns, "path", path_name, PATHS)
    if files is None:
        raise ValueError(f"{path} has no column of paths among {_listed(columns)}; name it with path_column")
    named = None if labels is False else _column(path, columns, "label", label_name, LABELS)
    if labels and named is None:
        raise ValueError(f"{path} has no column of labels among {_listed(columns)}; name it with label_column")
    grouped = _column(path, columns, "group", group_name, GROUPS)
    keep = list(range(len(files)))
    if split is not None:
        parts = _column(path, columns, "split", None, SPLITS)
        if parts is None:
            raise ValueError(f"{path} has no column 'split' among {_listed(columns)}, needed for split={split!r}")
        keep = [i for i in keep if parts[i] == split]
        if not keep:
            raise ValueError(f"{path} has no row whose split is {split!r}, but {_listed({str(p): [] for p in parts})}")
    names = [str(files[i]) for i in keep]
    if not names:
        raise ValueError(f"{path} has no rows, expected one for each image")
    # Labels are numbered over the whole table, so that every split of it numbers them alike.
    numbers, found = (None, None) if named is None else label_column(named, classes)
    return Table(
        names=names,
        labels=None if numbers is None else numbers[keep],
        classes=found,
        groups=None if grouped is None else group_column(grouped)[keep],
    )


def _column(path: Path, columns: Columns, what: str, name: str | None, usual: Sequence[str]) -> list[object] | None:
    if name is None:
        return next((columns[known] for known in usual if known in columns), None)
    if name not in columns:
        raise ValueError(
            f"{path} has no column {name!r} for the {what}, but {_listed(columns)}{nearest(name, list(columns))}"
        )
    return columns[name]


def _listed(columns: Columns) -> str:
    return ", ".join(repr(name) for name in list(columns)[:12]) or "no columns at all"


def _read_separated(path: Path) -> Columns:
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        separator = max(",;\t", key=first.count) if path.suffix.lower() == ".csv" else "\t"
        rows = csv.reader(file, delimiter=separator)
        header = [name.strip() for name in next(rows, [])]
        columns: Columns = {name: [] for name in header}
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(f"{path}, line {rows.line_num}, has {len(row)} fields, expected {len(header)}")
            for name, value in zip(header, row, strict=True):
                columns[name].append(value)
    return columns


def _read_json_lines(path: Path) -> Columns:
    records: list[dict[str, object]] = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}, is not JSON: {error.msg} at column {error.colno}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{path}, line {number}, is a {type(record).__name__}, expected an object {{…}}")
            records.append(record)
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def _read_parquet(path: Path) -> Columns:
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
    except ArrowException as error:
        raise ValueError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None
    return {str(name): table.column(name).to_pylist() for name in table.column_names}


READERS: dict[str, Callable[[Path], Columns]] = {
    ".csv": _read_separated,
    ".tsv": _read_separated,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}
