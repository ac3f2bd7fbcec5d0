"""Samples that have a label already, from a file that lists them, as rows of the embeddings."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.data.cells import missing
from nearfar.data.rows import find_column
from nearfar.data.tables import READERS, read_columns, read_text
from nearfar.messages import shown


class Labelled(NamedTuple):
    """(L,) rows, and their L labels, None where the file has none."""

    rows: Tensor
    labels: list[str | None]


def read_labelled(path: str | Path, names: Sequence[str]) -> Labelled:
    """The labelled samples.

    Args:
        path: a table with a column path, and label where the labels are known, or a text file of paths.
        names: N, of all samples. A path of the table is the name, or ends in it, or is the end of it.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(file)!r}; --labelled takes a table with a column path")
    if file.suffix.lower() in READERS:
        columns = read_columns(file)
        paths = find_column(columns, "path", None, ("path", "file", "filename", "name", "image"), str(file))
        if paths is None:
            raise ValueError(f"{file} has the columns {', '.join(columns)[:200]}, expected one called path")
        found = find_column(columns, "label", None, ("label", "class", "target"), str(file)) or [None] * len(paths)
        labels = [None if missing(value) else str(value) for value in found]
        wanted = [str(value) for value in paths]
    else:
        wanted = [line.strip() for line in read_text(file).splitlines() if line.strip()]
        labels = [None] * len(wanted)
    return _matched(wanted, labels, names, file)


def _matched(wanted: list[str], labels: list[str | None], names: Sequence[str], file: Path) -> Labelled:
    row_of = {name: row for row, name in enumerate(names)}
    last = [Path(name).name for name in names]
    often = Counter(last)
    by_last = {name: row for row, name in enumerate(last) if often[name] == 1}
    found: dict[int, str | None] = {}
    absent = []
    for text, label in zip(wanted, labels, strict=True):
        row = row_of.get(text)
        if row is None:
            parts = Path(text).parts
            row = next((row_of[p] for i in range(1, len(parts)) if (p := "/".join(parts[i:])) in row_of), None)
        if row is None and (other := by_last.get(Path(text).name)) is not None and names[other].endswith(text):
            row = other
        if row is None:
            absent.append(text)
        else:
            found[row] = label
    if not found:
        example = f", such as {shown(absent[0])}; the samples are called {shown(names[0])}, ..." if absent else ""
        raise ValueError(f"{file}: none of its {len(wanted)} paths is a sample of the data{example}")
    rows = torch.tensor(list(found), dtype=torch.long)
    return Labelled(rows, list(found.values()))
