"""What was measured: one row for each encoder and protocol, as it is written to `evaluation.json`."""

import io
import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One number, where it comes from and how far it can be trusted."""

    encoder: str  # "trained", "untrained", "raw" or a name
    protocol: str  # "knn", "linear", ...
    metric: str  # "accuracy", ...
    value: float
    low: float | None  # None where no interval is known
    high: float | None
    split: str
    data: str
    n: int


@dataclass(frozen=True)
class Results:
    """All rows of an evaluation, and what could not be measured, each in a line.

    Attributes:
        curves: arrays by encoder and protocol, the data of figures; written by `save_curves`.
    """

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    curves: dict[tuple[str, str], dict[str, NDArray[Any]]] = field(default_factory=dict, compare=False)

    def value(self, encoder: str, protocol: str, metric: str = "accuracy") -> float | None:
        """The number of the first such row, or None."""
        for row in self.rows:
            if (row.encoder, row.protocol, row.metric) == (encoder, protocol, metric):
                return row.value
        return None

    def after(self, earlier: "Results") -> "Results":
        """These results, after those of an earlier evaluation that were not measured anew."""

        def measure(row: Row) -> tuple[str, ...]:
            return row.encoder, row.protocol, row.metric, row.split, row.data

        anew = {measure(row) for row in self.rows}
        kept = [row for row in earlier.rows if measure(row) not in anew]
        notes = [note for note in earlier.notes if note not in self.notes] if kept else []
        return Results([*kept, *self.rows], [*notes, *self.notes], self.curves)

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
            names = [f.name for f in fields(Row)]
            rows = [Row(**{name: row[name] for name in names}) for row in content["results"]]
            return cls(rows, [str(note) for note in content.get("notes", [])])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} does not hold evaluation results ({error!r}); evaluate again to write it"
            ) from error

    def save_curves(self, folder: Path | str) -> list[Path]:
        """Write the arrays of each encoder and protocol to `PROTOCOL-ENCODER.npz` in a folder."""
        paths = []
        for (encoder, protocol), curves in self.curves.items():
            content = io.BytesIO()
            np.savez_compressed(content, allow_pickle=False, **curves)
            path = Path(folder) / f"{file_name(protocol)}-{file_name(encoder)}.npz"
            paths.append(write_atomically(path, content.getvalue()))
        return paths

    def table(self) -> Table:
        """For the terminal: a line for each measure, a column for each encoder, the notes below."""
        where = list(dict.fromkeys(f"{row.data} {row.split}" for row in self.rows))
        encoders = list(dict.fromkeys(row.encoder for row in self.rows))
        table = Table(
            title=escape(where[0]) if len(where) == 1 else None,
            caption=escape("\n".join(self.notes)) or None,
            caption_justify="left",
            min_width=72 if self.notes else None,
        )
        for name in ("protocol", "metric", "data")[: 3 if len(where) > 1 else 2]:
            table.add_column(name, overflow="fold")
        table.add_column("n", justify="right")
        for encoder in encoders:
            table.add_column(escape(encoder), justify="right", overflow="fold")
        lines: dict[tuple[str, str, str, int], dict[str, Row]] = {}
        for row in self.rows:
            lines.setdefault((row.protocol, row.metric, f"{row.data} {row.split}", row.n), {})[row.encoder] = row
        order = list(dict.fromkeys(protocol for protocol, *_ in lines))
        before = None
        for key in sorted(lines, key=lambda key: order.index(key[0])):
            if before not in (None, key[0]):
                table.add_section()
            protocol, before = key[0] if key[0] != before else "", key[0]
            texts = [protocol, key[1], key[2]][: 3 if len(where) > 1 else 2]
            found = [lines[key].get(encoder) for encoder in encoders]
            cells = [f"{shown(row)} {interval(row)}".strip() if row else "" for row in found]
            table.add_row(*map(escape, texts), f"{key[3]:,}", *cells)
        return table


# Decimals of what is no share, by the words before a comma. Everything else is one, shown in percent.
PLAIN = dict.fromkeys(("alignment", "uniformity", "RankMe", "LiDAR", "participation ratio", "hubness"), 2)
PLAIN |= {"median rank": 1, "mean rank": 1, "Spearman": 3, "Pearson": 3}


def shown(row: Row) -> str:
    """The value as its metric is read.

    >>> shown(Row("raw", "geometry", "RankMe", 12.345, None, None, "test", "glyphs", 100))
    '12.35'
    >>> shown(Row("trained", "retrieval", "median rank, image to text", 3.0, None, None, "test", "photos", 100))
    '3.0'
    """
    decimals = PLAIN.get(row.metric.partition(",")[0])
    return percent(row.value) if decimals is None else f"{row.value:.{decimals}f}"


def interval(row: Row) -> str:
    """The interval in brackets, empty where none is known."""
    if row.low is None or row.high is None:
        return ""
    decimals = PLAIN.get(row.metric.partition(",")[0])
    if decimals is not None:
        return f"({row.low:.{decimals}f} to {row.high:.{decimals}f})"
    return f"({100 * row.low:.1f} to {100 * row.high:.1f})"


def file_name(text: str) -> str:
    """A name as a part of a file's name.

    >>> file_name("timm:vit_tiny/16")
    'timm_vit_tiny_16'
    """
    return re.sub(r"[^\w.=-]+", "_", text).strip("._") or "_"


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
