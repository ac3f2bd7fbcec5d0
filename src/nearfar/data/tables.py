"""Tables of samples: CSV, TSV, JSON lines or Parquet."""

import codecs
import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearfar.data.cells import printable
from nearfar.data.parquet_files import read_parquet
from nearfar.data.rows import Columns, RowSamples, Wanted, samples
from nearfar.safe_read import regular

# Excel's "Unicode text" is UTF-16, and says so.
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
SPARSEST = 100  # cells of a table to one that is filled


def read(path: Path, wanted: Wanted) -> RowSamples:
    """The table's samples."""
    return samples(read_columns(path), wanted, str(path))


def read_columns(path: Path) -> Columns:
    """The table as equally long lists; bytes that are not UTF-8 are kept apart, for `printable` to show."""
    columns = READERS[path.suffix.lower()](path)
    for name in columns:
        if printable(name) != name:
            raise ValueError(f"{path} is not UTF-8 (its column {printable(name)[:60]!r}); save it as UTF-8")
    return columns


def read_text(path: Path) -> str:
    """A file of text, in UTF-8 or what its first bytes say; other bytes become surrogates, and cost their row alone."""
    content = regular(path).read_bytes()
    mark = next((mark for mark in BYTE_ORDER_MARKS if content.startswith(mark)), b"")
    encoding = BYTE_ORDER_MARKS.get(mark, "utf-8")
    return content.removeprefix(mark).decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")


def _read_separated(path: Path) -> Columns:
    text = read_text(path)
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count) if path.suffix.lower() == ".csv" else "\t"
    if path.suffix.lower() == ".tsv" and '"' in text and not _quoted(text, separator):
        return _parsed(path, text, separator, quoted=False)
    return _parsed(path, text, separator)


def _quoted(text: str, separator: str) -> bool:
    """Whether quotes are around fields, as Excel writes them, and not characters like any other, as GLUE does."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error:
        return False
    return all(len(row) in (0, len(rows[0])) for row in rows)


def _parsed(path: Path, text: str, separator: str, quoted: bool = True) -> Columns:
    file = io.StringIO(text, newline="")
    rows = csv.reader(file, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    try:
        header = [name.strip() for name in next(rows, [])]
        columns: Columns = {name: [] for name in header}
        places = {name: place for place, name in reversed(list(enumerate(header)))}  # of two of one name, the first
        kept = [(columns[name], place) for name, place in places.items()]
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise ValueError(f"{path}, line {rows.line_num}, has {len(row)} fields, expected {len(header)}")
            for column, place in kept:
                column.append(row[place])
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num}: {error}; is a quote left open before it?") from None
    return columns


def _read_json_lines(path: Path) -> Columns:
    records: list[dict[str, object]] = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}, is not JSON: {error.msg} at column {error.colno}") from None
        except ValueError as error:  # a number of thousands of digits
            raise ValueError(f"{path}, line {number}, is not JSON: {error}") from None
        except RecursionError:
            raise ValueError(f"{path}, line {number}, is nested too deeply") from None
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {number}, is a {type(record).__name__}, expected an object {{…}}")
        records.append(record)
    return from_records(records)


def from_records(records: list[dict[str, object]]) -> Columns:
    """Columns of everything that any record has, None where one lacks it."""
    names = dict.fromkeys(name for record in records for name in record)
    if len(names) * len(records) > SPARSEST * sum(map(len, records)) + 1_000_000:
        raise ValueError(
            f"{len(records):,} records have {len(names):,} different keys, expected the same few in each of them"
        )
    return {name: [record.get(name) for record in records] for name in names}


def _read_parquet(path: Path) -> Columns:
    from pyarrow import ArrowException

    try:
        table = read_parquet(path)
        return {str(name): _values(table.column(name)) for name in table.column_names}
    except FileNotFoundError:
        raise
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} is not a readable Parquet file: {reason}") from None


def _values(column: Any) -> list[object]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:  # Parquet's writers do not check; see `read_text`
        return [v and v.decode(errors="surrogateescape") for v in column.cast("binary").to_pylist()]


READERS: dict[str, Callable[[Path], Columns]] = {
    ".csv": _read_separated,
    ".tsv": _read_separated,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}


def path_and_rows(spec: str | Path) -> tuple[str, str | None]:
    """A table, and which of its rows are meant where the name says so.

    >>> path_and_rows("pairs.csv:vendor!=noto"), path_and_rows("pairs.csv")
    (('pairs.csv', 'vendor!=noto'), ('pairs.csv', None))
    """
    if not str(spec):
        raise ValueError("the data are '', expected a name, a file or a folder; for the current folder use .")
    suffixes = "|".join(suffix[1:] for suffix in READERS)
    named = None if Path(spec).exists() else re.fullmatch(rf"(.+\.(?i:{suffixes})):([^:=]+=.*)", str(spec), re.DOTALL)
    return (str(spec), None) if named is None else (named[1], named[2])
