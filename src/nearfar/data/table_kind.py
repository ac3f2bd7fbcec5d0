"""What a table is of, from its header and first rows: paths, sentences, or numbers that are series."""

import csv
import io
import json
from contextlib import suppress
from pathlib import Path

from nearfar.data.rows import PATHS, usual_column
from nearfar.data.tables import BYTE_ORDER_MARKS, READERS, path_and_rows

_LOOKED_AT = 65_536  # bytes at the start of a file of text
_ROWS = 5
_LEAST_NUMBERS = 8  # of a row that is a series
_SHARE = 0.9  # of the fields of a row that are numbers, or missing
_TEXTS = ("text", "texts", "sentence", "sentences", "utterance", "query", "sentence1", "anchor", "premise", "question")
_LONG = ({"series", "series_id", "sample"}, {"time", "step", "timestamp"})  # a row for each moment
_MISSING = {"", "?", "nan", "na", "null", "none"}


def table_file(spec: str) -> Path | None:
    """The file of a table that is there; None of anything else."""
    file = Path(path_and_rows(spec)[0]).expanduser() if spec else Path()
    return file if file.suffix.lower() in READERS and file.is_file() else None


def has_paths(file: Path) -> bool:
    """Whether a table has a column of paths, under a usual name."""
    return usual_column(column_names(file), PATHS) is not None


def has_texts(file: Path) -> bool:
    """Whether a table has a column of sentences, under a usual name."""
    return usual_column(column_names(file), _TEXTS) is not None


def has_series(file: Path) -> bool:
    """Whether the rows of a table are mostly numbers, with or without a header, or it has one row for each moment."""
    names = {name.lower() for name in column_names(file)}
    if all(usual & names for usual in _LONG):
        return True
    rows = _first_rows(file)
    return bool(rows) and all(_is_series(row) for row in (rows[1:] or rows))


def column_names(file: Path) -> list[str]:
    """The header of a table; of Parquet its schema, of JSON lines the keys of the first; empty where none is read."""
    if file.suffix.lower() == ".parquet":
        with suppress(Exception):  # pyarrow raises errors of every kind on broken files
            from pyarrow import parquet

            return [str(name) for name in parquet.read_schema(file).names]
        return []
    if file.suffix.lower() == ".jsonl":
        with suppress(ValueError, IndexError, AttributeError):
            return list(json.loads(_start(file).splitlines()[0]))
        return []
    return [name.strip() for name in next(iter(_first_rows(file)), [])]


def _first_rows(file: Path) -> list[list[str]]:
    if file.suffix.lower() not in (".csv", ".tsv"):
        return []
    lines = _start(file).splitlines(keepends=True)[: 1 + _ROWS]
    separator = "\t" if file.suffix.lower() == ".tsv" else max(",;\t", key=lines[0].count) if lines else ","
    with suppress(csv.Error):
        return [row for row in csv.reader(io.StringIO("".join(lines), newline=""), delimiter=separator) if row]
    return []


def _start(file: Path) -> str:
    with file.open("rb") as stream:
        content = stream.read(_LOOKED_AT)
    mark = next((mark for mark in BYTE_ORDER_MARKS if content.startswith(mark)), b"")
    text = content.removeprefix(mark).decode(BYTE_ORDER_MARKS.get(mark, "utf-8"), "replace")
    return text if len(content) < _LOOKED_AT or "\n" not in text else text[: text.rindex("\n") + 1]


def _is_series(row: list[str]) -> bool:
    numbers = [field for field in row if _is_number(field)]
    absent = sum(field.strip().lower() in _MISSING for field in row)
    return len(numbers) >= min(_LEAST_NUMBERS, len(row) - 1) >= 2 and len(numbers) + absent >= _SHARE * len(row) - 1


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return field.strip().lower() not in _MISSING
