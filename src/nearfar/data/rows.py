"""Columns of anything, a table, a caption file, shards, as samples: one way to find, check and join them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from nearfar.data.cells import missing, printable, text_of
from nearfar.data.columns import group_column, label_column, nearest
from nearfar.data.config import ReadConfig
from nearfar.data.dataset import Captions, Skipped

Columns = dict[str, list[object]]

PATHS = ("path", "image", "file", "filename", "file_name", "filepath", "image_path")
LABELS = ("label", "class", "category", "target")
GROUPS = ("group", "group_id")
CAPTIONS = ("caption", "captions", "text", "texts", "sentence", "sentences", "title")
SPLITS = ("split",)


@dataclass(frozen=True)
class Wanted:
    """What to take from columns; names that are None are looked for among the usual ones.

    Attributes:
        path, label, group, caption: names of columns; an empty name is no column.
        split: rows whose column "split" says so; "vendor=noto", "vendor=noto,fluent" or "vendor!=noto" asks another
            column; None takes all.
        labels, captions: whether to read them; None where they are there, True makes their absence an error.
        classes: names of the labels in the order to number them.
    """

    path: str | None = None
    label: str | None = None
    group: str | None = None
    caption: str | None = None
    split: str | None = None
    labels: bool | None = None
    captions: bool | None = None
    classes: Sequence[str] | None = None

    @classmethod
    def of(
        cls, read: ReadConfig, *, split: str | None, classes: Sequence[str] | None, captions: bool | None = None
    ) -> "Wanted":
        """What a configuration asks for."""
        columns = read.path_column, read.label_column, read.group_column, read.caption_column
        return cls(*columns, split, None if read.labels is None else bool(read.labels), captions, classes)


@dataclass(frozen=True, eq=False)
class RowSamples:
    """N samples: paths as written, what else is known of them, and what was left out.

    Attributes:
        rows: the row that each sample was first named in.
    """

    names: list[str]
    rows: list[int]
    labels: Tensor | None
    classes: list[str] | None
    groups: Tensor | None
    captions: Captions | None
    skipped: list[Skipped]


def samples(columns: Columns, wanted: Wanted, where: str) -> RowSamples:
    """The samples that rows state.

    Where there is a column of captions, rows of one path are one sample with several captions, as are lists in a cell.
    A row without a path, with bytes that are not UTF-8 or at odds with an earlier row of its path is left out and
    listed, and so is every caption that `text_of` refuses; a sample is left out when no caption of it remains.

    Args:
        columns: equally long lists, by name.
        where: what they are of, for messages.
    """
    files = find_column(columns, "path", wanted.path, PATHS, where)
    if files is None:
        raise ValueError(f"{where} has no column of paths among {listed(columns)}; {named_by('path')}")
    named = None if wanted.labels is False else find_column(columns, "label", wanted.label, LABELS, where)
    if wanted.labels and named is None:
        raise ValueError(f"{where} has no column of labels among {listed(columns)}; {named_by('label')}")
    told = find_column(columns, "caption", wanted.caption, CAPTIONS, where)
    if wanted.captions and told is None:
        raise ValueError(f"{where} has no column of captions among {listed(columns)}; {named_by('caption')}")
    grouped = find_column(columns, "group", wanted.group, GROUPS, where)
    keep = rows_of_split(columns, wanted.split, where)
    if not keep:
        raise ValueError(f"{where} has no rows, expected one for each image")
    kept = _Kept(told is not None, told if wanted.captions is not False else None)
    for row in keep:
        stated = [column[row] for column in (named, grouped) if column is not None]
        kept.add(row, files[row], [None if missing(value) else value for value in stated])
    rows, captions = kept.finished()
    if not rows:
        first = f"the first, {kept.skipped[0].path[:200]}: {kept.skipped[0].reason}"
        raise ValueError(f"none of the {len(keep)} rows of {where} can be used; {first}")
    # Labels are numbered over the whole table, so that every split of it numbers them alike.
    numbers, found = (None, None) if named is None else label_column(list(map(sound, named)), wanted.classes)
    return RowSamples(
        names=[str(files[row]) for row in rows],
        rows=rows,
        labels=None if numbers is None else numbers[rows],
        classes=found,
        groups=None if grouped is None else group_column(grouped)[rows],
        captions=captions,
        skipped=kept.skipped,
    )


class _Kept:
    """Rows as they are gone through: which stay, with which captions, and which do not."""

    def __init__(self, joined: bool, told: Sequence[object] | None) -> None:
        self.joined, self.told = joined, told  # whether rows of one path are one sample; the captions
        self.rows: list[int] = []
        self.facts: dict[str, tuple[int, list[object]]] = {}  # by path: its first row, and the row's label and group
        self.captions: dict[int, dict[str, None]] = {}  # by first row; each text once
        self.skipped: list[Skipped] = []

    def add(self, row: int, file: object, facts: list[object]) -> None:
        name = f"row {row + 1}" if missing(file) or not isinstance(file, str | int) else printable(str(file))
        fault = "" if isinstance(file, str | int) else f"its path is a {type(file).__name__}, expected a text"
        if missing(file):
            fault = "no path"
        elif any(isinstance(value, str) and printable(value) != value for value in (file, *facts)):
            fault = f"row {row + 1} is not UTF-8; save the table as UTF-8"
        if fault:
            self.skipped.append(Skipped(name, fault))
            return
        first, stated = self.facts.setdefault(name, (row, facts)) if self.joined else (row, facts)
        if stated != facts:
            self.skipped.append(Skipped(name, f"row {row + 1} has another label or group than row {first + 1}"))
            return
        if first == row:
            self.rows.append(row)
        if self.told is not None:
            self._tell(first, row, name)

    def _tell(self, first: int, row: int, name: str) -> None:
        assert self.told is not None
        texts = self.captions.setdefault(first, {})
        for value in cell_texts(self.told[row]):
            text, fault = text_of(value)
            if fault:
                self.skipped.append(Skipped(name, f"row {row + 1}: the caption {fault}"))
            else:
                texts[text] = None

    def finished(self) -> tuple[list[int], Captions | None]:
        if self.told is None:
            return self.rows, None
        rows = [row for row in self.rows if self.captions[row]]
        return rows, [tuple(self.captions[row]) for row in rows]


def cell_texts(cell: object) -> Iterator[object]:
    """One caption, or a list of them; an empty list is one that is missing."""
    if isinstance(cell, list | tuple) and cell:
        yield from cell
    else:
        yield None if isinstance(cell, list | tuple) else cell


def find_column(columns: Columns, what: str, name: str | None, usual: Sequence[str], where: str) -> list[object] | None:
    """The column of that name, or of the first usual name that is there, in any case of letters; of "" none."""
    if name == "":
        return None
    if name is None:
        found = usual_column(columns, usual)
        return None if found is None else columns[found]
    if name not in columns:
        raise ValueError(
            f"{where} has no column {name!r} for the {what}, but {listed(columns)}{nearest(name, list(columns))}"
        )
    return columns[name]


def usual_column(names: Iterable[str], usual: Sequence[str]) -> str | None:
    """The name that is taken for a usual one where none is given.

    >>> usual_column(["path", "Group_ID"], GROUPS)
    'Group_ID'
    """
    lower = {known.lower(): known for known in reversed(list(names))}
    return next((lower[known] for known in usual if known in lower), None)


def rows_of_split(columns: Columns, split: str | None, where: str) -> list[int]:
    """Numbers of the rows of a split; of all where it is None."""
    every = range(max(map(len, columns.values()), default=0))
    if split is None:
        return list(every)
    asked = re.fullmatch(r"(.+?)(!?=)(.*)", split)
    name, equals, value = asked.groups() if asked else ("split", "=", split)
    parts = find_column(columns, "split", name if asked else None, SPLITS, where)
    if parts is None:
        raise ValueError(f"{where} has no column 'split' among {listed(columns)}, needed for split={split!r}")
    stated = list(map(str, parts))
    values = {value} if value in stated else set(value.split(","))  # "noto,fluent" are two, unless it is one
    keep = [i for i in every if (stated[i] in values) == (equals == "=")]
    if unknown := sorted(values - set(stated)):
        known = listed({part: [] for part in stated})
        raise ValueError(f"{where} has no row whose {name} is {unknown[0]!r}, but {known}")
    if not keep:
        raise ValueError(f"{where} has no row whose {name} is not {value!r}")
    return keep


def named_by(what: str) -> str:
    """How a column is named, in Python and as typed."""
    return f"name it with {what}_column: --data.{what}_column, of nearfar shard --{what}-column"


def listed(columns: Columns) -> str:
    return ", ".join(repr(printable(name)[:60]) for name in list(columns)[:12]) or "no columns at all"


def sound(value: object) -> object:
    """A label that is not UTF-8 must not become a class."""
    return None if isinstance(value, str) and printable(value) != value else value
