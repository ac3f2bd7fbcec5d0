"""What was measured: one row for each encoder and protocol, as it is written to `evaluation.json`."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One number, where it comes from and how far it can be trusted."""

    encoder: str  # "trained", "untrained", "raw" or a name
    protocol: str  # "knn", "linear", ...
    metric: str  # "accuracy", ...
    value: float
    low: float
    high: float
    split: str
    data: str
    n: int


@dataclass(frozen=True)
class Results:
    """All rows of an evaluation, and what could not be measured, each in a line."""

    rows: Sequence[Row] = ()
    notes: Sequence[str] = ()

    def value(self, encoder: str, protocol: str, metric: str = "accuracy") -> float | None:
        """The number of the first such row, or None."""
        for row in self.rows:
            if (row.encoder, row.protocol, row.metric) == (encoder, protocol, metric):
                return row.value
        return None

    def save(self, path: Path | str) -> Path:
        """Write `{"results": [...]}`, with "notes" where there are any; a reader never sees half of it."""
        content: dict[str, Any] = {"results": [asdict(row) for row in self.rows]}
        if self.notes:
            content["notes"] = list(self.notes)
        return write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> "Results":
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            names = [field.name for field in fields(Row)]
            rows = [Row(**{name: row[name] for name in names}) for row in content["results"]]
            return cls(rows, [str(note) for note in content.get("notes", [])])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} does not hold evaluation results ({error!r}); evaluate again to write it"
            ) from error

    def table(self) -> Table:
        """For the terminal: one line for each row, the notes below."""
        table = Table(caption=escape("\n".join(self.notes)) or None, caption_justify="left")
        for name in ("encoder", "protocol", "metric", "value", "95 % interval", "data", "n"):
            table.add_column(name, justify="right" if name in ("value", "95 % interval", "n") else "left")
        for row in self.rows:
            table.add_row(
                escape(row.encoder),
                escape(row.protocol),
                escape(row.metric),
                percent(row.value),
                f"{percent(row.low)} to {percent(row.high)}",
                escape(f"{row.data} {row.split}"),
                f"{row.n:,}",
            )
        return table


def percent(value: float) -> str:
    """
    >>> percent(0.8312)
    '83.1 %'
    """
    return f"{100 * value:.1f} %"


def write_atomically(path: Path | str, content: str | bytes) -> Path:
    """Write beside, then rename: a crash leaves the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path
