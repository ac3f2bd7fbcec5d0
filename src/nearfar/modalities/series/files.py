"""Files of series, row by row: arrays, tables, and those of the UCR and UEA archives.

What is missing inside a series is filled along the line between its neighbours in time, at the edges by the nearest
value, and a channel without any value by 0; steps at the end without any value are no part of it.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.dataset import Skipped
from nearfar.data.rows import GROUPS, LABELS, Columns, find_column
from nearfar.data.tables import read_columns, read_text
from nearfar.safe_read import opened_npz

Values = NDArray[np.float64]
ARRAYS, ARRAY_LABELS = ("x", "X", "series", "data", "arr_0"), ("y", "labels", "targets", "arr_1")
SERIES, TIMES = ("series", "series_id", "id", "sample"), ("time", "step", "t", "timestamp")
MISSING = {"", "?", "nan", "na", "null", "none"}


def read_series(path: Path, *, label: str | None = None, group: str | None = None) -> "Rows":
    """The rows of a file; `label` and `group` name columns of a table."""
    if path.suffix.lower() == ".npz":
        return _from_arrays(path)
    if path.suffix.lower() == ".ts":
        return _from_ts(path)
    if path.suffix.lower() in (".csv", ".tsv") and _headless(path):
        return _from_lines(path)
    columns = {name: column for name, column in read_columns(path).items() if not _is_index(name)}
    series = find_column(columns, "series", None, SERIES, str(path))
    long = series is not None and len({str(name) for name in series}) < len(series)
    return (_from_long if long else _from_wide)(path, columns, label, group)


class Rows:
    """Series as a file states them, row by row: values (C, T), label, group, name."""

    def __init__(self) -> None:
        self.values: list[Values] = []
        self.labels: list[object] = []
        self.groups: list[object] = []
        self.names: list[str] = []
        self.skipped: list[Skipped] = []

    def add(self, name: str, read: Callable[[], Values], label: object = None, group: object = None) -> None:
        """A row that cannot be read is left out and listed."""
        try:
            values = filled(read())
        except ValueError as error:
            self.skipped.append(Skipped(name, str(error)))
            return
        self.values.append(values)
        self.labels.append(label)
        self.groups.append(group)
        self.names.append(name)

    def with_usual_channels(self) -> "Rows":
        """With those rows alone that have as many channels as most have; the others are listed."""
        counts = Counter(map(len, self.values))
        if len(counts) < 2:
            return self
        usual = counts.most_common(1)[0][0]
        kept = Rows()
        kept.skipped = list(self.skipped)
        for values, label, group, name in zip(self.values, self.labels, self.groups, self.names, strict=True):
            if len(values) == usual:
                kept.add(name, lambda values=values: values, label, group)  # type: ignore[misc]
            else:
                kept.skipped.append(Skipped(name, f"it has {len(values)} channels, expected {usual} as most have"))
        return kept


def filled(values: Values) -> Values:
    """(C, T) without its empty end, and with what is missing inside of it filled; see the head of this file.

    >>> filled(np.array([[np.nan, 1.0, np.nan, 3.0, np.nan]])).tolist()
    [[1.0, 1.0, 2.0, 3.0]]
    """
    there = ~np.isnan(values)
    if not there.any():
        raise ValueError("it has no values")
    end = int(np.flatnonzero(there.any(axis=0))[-1]) + 1
    values, there = values[:, :end], there[:, :end]
    if np.isinf(values).any() or (np.abs(values[there]) > np.finfo(np.float32).max).any():
        raise ValueError("it has infinite values")
    if there.all():
        return values
    steps, whole = np.arange(values.shape[1]), np.zeros_like(values)
    for channel, known in enumerate(there):
        if known.any():
            whole[channel] = np.interp(steps, steps[known], values[channel, known])
    return whole


def _from_arrays(path: Path) -> Rows:
    arrays = _arrays(path)
    name = next((each for each in ARRAYS if each in arrays), None)
    if name is None:
        there = ", ".join(map(repr, arrays)) or "none"
        raise ValueError(f"{path} has the arrays {there}, expected series called {' or '.join(ARRAYS)}")
    x, labels = arrays[name], next((arrays[each] for each in ARRAY_LABELS if each in arrays), None)
    if x.ndim not in (2, 3) or x.dtype.kind not in "fiu" or not x.size:
        raise ValueError(f"{path}: {name} is {x.dtype} of shape {x.shape}, expected numbers (N, T) or (N, C, T)")
    if labels is not None and labels.shape != (len(x),):
        raise ValueError(f"{path} has {len(x)} series and labels of shape {labels.shape}, expected one for each")
    rows = Rows()
    for number, series in enumerate(x.astype(np.float64).reshape(len(x), -1, x.shape[-1])):
        label = None if labels is None else labels[number].item()
        rows.add(str(number), lambda series=series: series, label)  # type: ignore[misc]
    return rows


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with opened_npz(path) as file:
            return {name: file[name] for name in file}
    except FileNotFoundError:
        raise
    except Exception as error:  # of the archive, of a header, of the memory
        raise ValueError(f"{path} is not a readable .npz file ({' '.join(str(error).split())[:120]})") from None


def _from_lines(path: Path) -> Rows:
    """UCR's: a label and the values, in a line; in the archive's old files between one or more spaces."""
    text, rows = read_text(path), Rows()
    separator = _separator(text.partition("\n")[0])
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            label, *values = line.split(separator)
            rows.add(f"row {number}", lambda values=values: _numbers([values]), label.strip())  # type: ignore[misc]
    return rows


def _from_ts(path: Path) -> Rows:
    """UEA's: lines of settings that begin with @, then a line for each series, channels and label parted by colons."""
    rows, labelled, begun = Rows(), False, False
    for number, line in enumerate(read_text(path).splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if not begun:
            word, _, rest = line.lower().partition(" ")
            if word == "@classlabel":
                labelled = rest.split()[:1] == ["true"]
            elif word == "@timestamps" and rest.split()[:1] == ["true"]:
                raise ValueError(f"{path} has time stamps (@timeStamps true), expected values at even steps")
            elif word in ("@targetlabel", "@class_label") and rest.split()[:1] == ["true"]:
                raise ValueError(f"{path} has {word}, expected @classLabel or none")
            elif word == "@data":
                begun = True
            elif not word.startswith("@"):
                raise ValueError(f"{path}, line {number}, is {line[:40]!r}, expected @data before the series")
            continue
        fields = line.split(":")
        label = fields.pop().strip() if labelled else None
        channels = [field.split(",") for field in fields]
        rows.add(f"line {number}", lambda channels=channels: _numbers(channels), label)  # type: ignore[misc]
    if not begun:
        raise ValueError(f"{path} has no line @data, expected a file of the UEA archive")
    return rows


def _from_wide(path: Path, columns: Columns, label: str | None, group: str | None) -> Rows:
    """A row for each series."""
    labels = find_column(columns, "label", label, LABELS, str(path))
    groups = find_column(columns, "group", group, GROUPS, str(path))
    names = find_column(columns, "series", None, SERIES, str(path))
    apart = [id(column) for column in (labels, groups, names)]
    steps = [column for column in columns.values() if id(column) not in apart]
    if not steps:
        raise ValueError(f"{path} has no columns of values beside {', '.join(map(repr, columns))}")
    rows = Rows()
    for row in range(len(steps[0])):
        rows.add(
            f"row {row + 1}" if names is None else str(names[row]),
            lambda row=row: _numbers([[column[row] for column in steps]]),  # type: ignore[misc]
            None if labels is None else labels[row],
            None if groups is None else groups[row],
        )
    return rows


def _from_long(path: Path, columns: Columns, label: str | None, group: str | None) -> Rows:
    """A row for each step, those of a series anywhere in the table."""
    where = str(path)
    series = find_column(columns, "series", None, SERIES, where)
    times = find_column(columns, "time", None, TIMES, where)
    labels = find_column(columns, "label", label, LABELS, where)
    groups = find_column(columns, "group", group, GROUPS, where)
    apart = [id(column) for column in (series, times, labels, groups)]
    channels = [column for column in columns.values() if id(column) not in apart]
    if series is None or not channels:
        raise ValueError(f"{path} has no columns of channels beside {', '.join(map(repr, columns))}")
    members: dict[str, list[int]] = {}
    for row, name in enumerate(series):
        members.setdefault(str(name), []).append(row)
    rows = Rows()
    for name, steps in members.items():

        def read(steps: list[int] = steps) -> Values:
            if times is not None:
                at = _numbers([[times[row] for row in steps]])[0]
                if np.isnan(at).any() or len(np.unique(at)) < len(at):
                    raise ValueError("its times are not all different numbers")
                steps = [steps[i] for i in np.argsort(at)]
            return _numbers([[column[row] for row in steps] for column in channels])

        said = {repr(labels[row]) for row in steps} if labels is not None else {""}
        if len(said) > 1:
            rows.skipped.append(Skipped(name, f"its steps have {len(said)} labels, expected one"))
            continue
        own = None if labels is None else labels[steps[0]]
        rows.add(name, read, own, None if groups is None else groups[steps[0]])
    return rows


def _headless(path: Path) -> bool:
    """Whether the first line is a series already: hardly a field but the first is a word, and the first no column's."""
    first = read_text(path).partition("\n")[0].rstrip("\r\n")
    separator = _separator(first)
    try:
        fields = first.split() if separator is None else next(csv.reader(io.StringIO(first), delimiter=separator), [])
    except csv.Error:  # a field without end
        return False
    named = fields[:1] and fields[0].strip().lower() in (*LABELS, *GROUPS, *SERIES, *TIMES)
    words = sum(number_in(field) is None for field in fields[1:])
    return len(fields) > 1 and not named and words <= (len(fields) - 1) // 10


def _separator(line: str) -> str | None:
    """What parts the fields of a line; None is any run of spaces."""
    found = max("\t,; ", key=line.strip().count)
    return None if found == " " else found


def _is_index(name: str) -> bool:
    """Whether a column only numbers the rows, as tables have it that pandas wrote."""
    return not name.strip() or name.startswith("Unnamed: ")


def _numbers(channels: Sequence[Sequence[object]]) -> Values:
    """(C, T), channels of unequal length ended with NaN."""
    longest, stated = max(map(len, channels), default=0), sum(map(len, channels))
    if not stated:
        raise ValueError("it has no values")
    if len(channels) * longest > 100 * stated + 1_000_000:
        raise ValueError(f"{len(channels):,} channels of up to {longest:,} values hold {stated:,} in all")
    values = np.full((len(channels), longest), np.nan)
    for row, channel in enumerate(channels):
        for place, field in enumerate(channel):
            number = number_in(field)
            if number is None:
                raise ValueError(f"{str(field)[:40]!r} is not a number")
            values[row, place] = number
    return values


def number_in(field: object) -> float | None:
    """NaN for what is missing, None for what is not a number."""
    if field is None or (isinstance(field, str) and field.strip().lower() in MISSING):
        return float("nan")
    try:
        return float(field) if isinstance(field, str | int | float) else None
    except (ValueError, OverflowError):
        return None
