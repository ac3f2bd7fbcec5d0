"""What was measured: one row for each encoder and protocol, as it is written to `evaluation.json`."""

import io
import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from nearfar.data.cache import write_file
from nearfar.metric_text import SHARE, MetricStyle, metric_text
from nearfar.notebook import Printed
from nearfar.safe_read import read_json

BY = " by "  # between a baseline and the protocol that it was measured by, if it is another one
_LONGEST = 60  # characters of a name in a file's name


@dataclass(frozen=True)
class Row:
    """One number, where it comes from and how far it can be trusted."""

    encoder: str  # "trained", "untrained", "random", "raw" or a name
    protocol: str  # "knn", "linear", ...
    metric: str  # "accuracy", ...
    value: float
    low: float | None  # None where no interval is known
    high: float | None
    split: str
    data: str
    n: int
    stated: MetricStyle | None = field(default=None, compare=False)  # of the metric, as its protocol declares it

    @property
    def style(self) -> MetricStyle:
        """How the metric is written and compared; of rows that do not say, as the built-in protocol declares it."""
        return self.stated or _declared(self.protocol, self.metric)


@dataclass(frozen=True)
class Comparison:
    """An encoder minus what it is compared with, on the same test samples (`evaluation/paired.py`)."""

    encoder: str
    baseline: str  # another encoder of the rows, or "raw by dtw": "raw" by another protocol
    protocol: str
    metric: str
    difference: float  # of the metric, encoder minus baseline
    low: float | None  # 95 % interval; None: no sample tells them apart
    high: float | None
    p: float  # two-sided, of no difference
    n: int
    split: str
    data: str
    role: str  # of the baseline: "start", "baseline" or "encoder"


@dataclass(frozen=True)
class Provenance:
    """How one protocol measured its numbers on one data set, and notes on them."""

    data: str
    split: str
    protocol: str
    nearfar: str  # its version
    seeds: list[int]
    training: int  # samples of the training part
    settings: dict[str, Any]  # all that the numbers depend on
    encoders: dict[str, str] = field(default_factory=dict)  # by their names in the rows, where each comes from
    metrics: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def covers(self, row: Row) -> bool:
        """Whether the row is one of these numbers."""
        same = (self.data, self.split, self.protocol) == (row.data, row.split, row.protocol)
        return same and row.encoder in self.encoders and row.metric in self.metrics


@dataclass(frozen=True)
class Results(Printed):
    """All rows of an evaluation, and what could not be measured, each in a line.

    Attributes:
        provenance: how they were measured, for each protocol and data set.
        curves: arrays by encoder and protocol, the data of figures; written by `save_curves`.
        comparisons: of the encoders with each other, with the start and with the baselines, sample by sample.
        facts: numbers on the data that advice is taken from, such as the median side of the images.
        details: those of the notes that concern single metrics; not written.
    """

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    curves: dict[tuple[str, str], dict[str, NDArray[Any]]] = field(default_factory=dict, compare=False)
    provenance: list[Provenance] = field(default_factory=list, compare=False)
    comparisons: list[Comparison] = field(default_factory=list, compare=False)
    facts: dict[str, float] = field(default_factory=dict, compare=False)
    details: list[str] = field(default_factory=list, compare=False)

    def value(self, encoder: str, protocol: str, metric: str = "accuracy") -> float | None:
        """The number of the first such row, or None."""
        for row in self.rows:
            if (row.encoder, row.protocol, row.metric) == (encoder, protocol, metric):
                return row.value
        return None

    def after(self, earlier: "Results") -> "Results":
        """These results, after those of an earlier evaluation that were not measured anew.

        Of the notes stay those of rows that stay, each with the data it is about; an evaluation that found nothing
        adds none to what is there.
        """

        def measure(row: Row) -> tuple[str, ...]:
            return row.encoder, row.protocol, row.metric, row.split, row.data

        anew = {measure(row) for row in self.rows}
        kept = [row for row in earlier.rows if measure(row) not in anew]
        rows, sources = [*kept, *self.rows], [*earlier.provenance, *self.provenance]
        needed = {max((i for i, source in enumerate(sources) if source.covers(row)), default=-1) for row in rows}
        sources = [source for i, source in enumerate(sources) if i in needed]
        notes = [f"{source.data} {source.split}: {note}" for source in sources for note in source.notes]
        return Results(
            rows,
            list(dict.fromkeys(notes if rows else self.notes)),
            self.curves,
            sources,
            [*_still_true(earlier.comparisons, anew), *self.comparisons],
            {**earlier.facts, **self.facts},
        )

    def save(self, path: Path | str) -> Path:
        """Write `{"results": [...]}`, with "comparisons", "facts", "provenance" and "notes" if there are any.

        Whole or not at all.
        """
        content: dict[str, Any] = {"results": [_row_json(row) for row in self.rows]}
        if self.comparisons:
            content["comparisons"] = [asdict(comparison) for comparison in self.comparisons]
        if self.facts:
            content["facts"] = dict(self.facts)
        if provenance := [asdict(source) for source in self.provenance if source.encoders]:
            content["provenance"] = provenance
        if self.notes:
            content["notes"] = list(self.notes)
        return write_file(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> "Results":
        """Read what `save` wrote."""
        try:
            content = read_json(Path(path))
            rows = [_row_from_json(row) for row in content["results"]]
            provenance = [_from_json(Provenance, source) for source in content.get("provenance", [])]
            if not all(isinstance(p.settings, dict) and isinstance(p.training, int) for p in provenance):
                raise TypeError("provenance")
            return cls(
                rows,
                [str(note) for note in content.get("notes", [])],
                provenance=provenance,
                comparisons=[_from_json(Comparison, each) for each in content.get("comparisons", [])],
                facts={str(name): float(value) for name, value in content.get("facts", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} does not hold evaluation results ({error!r}); evaluate again to write it"
            ) from error

    def save_curves(self, folder: Path | str) -> list[Path]:
        """Write the arrays of each encoder and protocol to `DATA_SPLIT/PROTOCOL-ENCODER.npz` in a folder."""
        paths = []
        for (encoder, protocol), curves in self.curves.items():
            content = io.BytesIO()
            np.savez_compressed(content, allow_pickle=False, **curves)
            path = Path(folder) / f"{self.curve_name(encoder, protocol)}.npz"
            paths.append(write_file(path, content.getvalue()))
        return paths

    def curve_name(self, encoder: str, protocol: str) -> str:
        """The file of an encoder's curves, without its ending: each data set has a folder."""
        rows = (row for row in self.rows if (row.encoder, row.protocol) == (encoder, protocol))
        return curve_name(next(rows, Row(encoder, protocol, "", 0.0, None, None, "test", "data", 0)))

    def protocol(self, row: Row) -> str:
        """The row's protocol in words: of k-NN also the k, where the metric does not name it."""
        source = next((source for source in reversed(self.provenance) if source.covers(row)), None)
        match source.settings.get("k") if source is not None and row.protocol == "knn" else None:
            case [int(k), *_] if source is not None and "k = " not in row.metric:
                return f"{row.protocol}, k = {min(k, source.training)}"
        return row.protocol

    def shown(self) -> Table:
        return self.table()

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
            protocol = self.protocol(next(iter(lines[key].values()))) if key[0] != before else ""
            before = key[0]
            texts = [protocol, key[1], key[2]][: 3 if len(where) > 1 else 2]
            found = [lines[key].get(encoder) for encoder in encoders]
            cells = [f"{shown(row)} {interval(row)}".strip() if row else "" for row in found]
            table.add_row(*map(escape, texts), f"{key[3]:,}", *cells)
        return table


def _still_true(comparisons: list[Comparison], anew: set[tuple[str, ...]]) -> Iterator[Comparison]:
    """Earlier comparisons neither of whose sides was measured anew."""
    for each in comparisons:
        name, _, protocol = each.baseline.partition(BY)
        measure = each.metric, each.split, each.data
        sides = {(each.encoder, each.protocol, *measure), (name, protocol or each.protocol, *measure)}
        if not sides & anew:
            yield each


def _from_json(kind: type[Any], content: dict[str, Any]) -> Any:
    return kind(**{each.name: content[each.name] for each in fields(kind)})


def _row_json(row: Row) -> dict[str, Any]:
    """With the style of metrics that are no plain share, for readers that do not know the protocol."""
    content = {name: value for name, value in asdict(row).items() if name != "stated"}
    return content if row.style == SHARE else {**content, "style": asdict(row.style)}


def _row_from_json(content: dict[str, Any]) -> Row:
    stated = content.get("style")
    row: Row = _from_json(Row, {**content, "stated": None})
    return row if stated is None else replace(row, stated=MetricStyle.read(stated))


def _declared(protocol: str, metric: str) -> MetricStyle:
    from nearfar.evaluation.protocols import PROTOCOLS  # protocols need torch, results do not

    known = PROTOCOLS.get(protocol)
    return SHARE if known is None else known.style(metric)


def curve_name(row: Row) -> str:
    """Where the curves behind a row are, without the ending of the file.

    >>> curve_name(Row("raw", "knn", "accuracy", 0.5, None, None, "test", "my/cats", 100))
    'my_cats_test/knn-raw'
    """
    return f"{file_name(f'{row.data} {row.split}')}/{file_name(row.protocol)}-{file_name(row.encoder)}"


def bounds(style: MetricStyle) -> tuple[float, float]:
    """The least and the most that a metric can be."""
    return (-math.inf, math.inf) if style.decimals is not None else (style.least, 1.0)


def shown(row: Row) -> str:
    """The value as its metric is read."""
    return metric_text(row.value, row.style.decimals)


def interval(row: Row) -> str:
    """The interval in brackets, empty where none is known."""
    if row.low is None or row.high is None:
        return ""
    if (places := row.style.decimals) is not None:
        return f"({row.low:.{places}f} to {row.high:.{places}f})"
    return f"({100 * row.low:.1f} to {100 * row.high:.1f})"


def file_name(text: str) -> str:
    """A name as part of a file name; long ones are cut to their end, with a checksum before it.

    >>> file_name("timm:vit_tiny/16")
    'timm_vit_tiny_16'
    >>> len(file_name("/long" * 99))
    59
    """
    name = re.sub(r"[^\w.=-]+", "_", text).strip("._") or "_"
    if len(name) <= _LONGEST:
        return name
    return f"{zlib.crc32(text.encode()):08x}-{name[-50:]}"  # 50 characters are at most 200 bytes
