"""Parquet files, which may be anyone's: read in small batches, so that one that unpacks without end is refused early.

Arrow asks for memory by the counts in a file's footer, and a value that is written once may stand for millions of rows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.safe_read import check_ratio, check_unpacked, regular

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

DENSEST = 100  # rows to a byte of a file: the same row over and over is written in no space
_BATCH = 256  # rows decoded between two looks at their bytes


def open_parquet(path: Path) -> "ParquetFile":
    """The file, whose counts of rows and values are possible ones; ValueError or an error of Arrow where not."""
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(regular(path))
    about, size = file.metadata, path.stat().st_size
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    rows = [group.num_rows for group in groups]
    if min(rows, default=0) < 0 or sum(rows) != about.num_rows or about.num_rows > DENSEST * size:
        stated = f"{about.num_rows:,} rows in {size:,} bytes, in groups of {max(rows, default=0):,} at most"
        raise ValueError(f"{path} states {stated}, expected a table")
    check_ratio(path, max((group.total_byte_size for group in groups), default=0))
    return file  # what it states of columns is not asked for: of a damaged footer, that ends the process (SIGABRT)


def read_parquet(path: Path, columns: Sequence[str] | None = None, *, group: int | None = None) -> Any:
    """The table of Arrow in a file, or some of its columns, of all row groups or of one."""
    from pyarrow import Table

    file = open_parquet(path)
    batches, held = [], 0
    wanted = None if columns is None else list(columns)
    for batch in file.iter_batches(_BATCH, row_groups=None if group is None else [group], columns=wanted):
        held += batch.nbytes
        check_unpacked(path, held)
        batches.append(batch)
    schema = file.schema_arrow if wanted is None else None
    return Table.from_batches(batches, schema) if batches else file.read(wanted).slice(0, 0)
