"""Series by number, each of one or more channels over time; what is missing in them is filled (`series_files`)."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from nearfar.data.columns import group_column as numbered_groups
from nearfar.data.columns import label_column as numbered_labels
from nearfar.data.columns import nearest
from nearfar.data.config import ReadConfig, read_config
from nearfar.data.dataset import Dataset, Facts
from nearfar.data.python_data import ObjectData
from nearfar.data.sources import built_in, built_in_split
from nearfar.data.table_kind import has_series, table_file
from nearfar.data.tables import READERS
from nearfar.modalities.series.files import MISSING, Rows, Values, number_in, read_series
from nearfar.python_objects import find_object, is_object

SUFFIXES = (".ts", ".npz", *READERS)
BUILT_IN = {"waves": 4000}  # and how many, where it is not said
_PART = re.compile(r"(.*)_(train|test)$", re.IGNORECASE)


class SeriesDataset(Dataset):
    """N series of C channels, in one array as long as the longest.

    Args:
        values: (N, C, T), NaN behind the end of a shorter series and nowhere else.
        facts: labels, classes, groups, names, skipped.

    >>> data = SeriesDataset(torch.zeros(3, 2, 9), labels=torch.tensor([0, 1, 0]), classes=["up", "down"])
    >>> data.channels, data.fetch(torch.tensor([2])).shape, data.subset(torch.tensor([1])).labels.tolist()
    (2, torch.Size([1, 2, 9]), [1])
    """

    columns = ("values",)

    def __init__(self, values: Tensor, **facts: Unpack[Facts]) -> None:
        if values.ndim != 3 or not values.is_floating_point() or not values.numel():
            raise ValueError(f"series are {values.dtype} of shape {tuple(values.shape)}, expected numbers (N, C, T)")
        self.values, self.channels, self.size = values.float(), int(values.shape[1]), int(values.shape[2])
        self.describe(**facts)

    def __len__(self) -> int:
        return len(self.values)

    def fetch(self, indices: Tensor) -> Tensor:
        """(B,) int64 to (B, C, T) float32."""
        return self.values[indices.cpu()]


def open_series(
    spec: str | Path,
    read: ReadConfig | None = None,
    *,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    **settings: Any,
) -> SeriesDataset:
    """The series of a file; rows that cannot be used are left out and listed.

    Args:
        spec: "waves" or "waves:N"; `.npz` with `x` (N, T) or (N, C, T), NaN where a value is missing, and labels `y`;
            `.ts` of the UEA archive; `.tsv` of the UCR archive, and any `.csv` or `.tsv` without a header: the label,
            then the values. A table with a header (`.csv`, `.tsv`, `.jsonl`, `.parquet`) has a row for each series,
            every column a step but those of labels and groups; or, with a column "series", a row for each step, the
            other columns being channels, in the order of a column "time" where there is one. Or a folder, or a file
            NAME_TRAIN beside NAME_TEST.
        split: "train" or "test", of a folder with NAME_TRAIN and NAME_TEST, of such a file, or of waves.
        read: how to read, as in a run's configuration; `settings` are its fields as keywords: label_column="y".
        classes: names of the labels in the order to number them, such as those of the training data.
        seed: of waves.
    """
    read = read_config(read, settings)
    if (made := built_in(spec, BUILT_IN)) is not None:
        from nearfar.modalities.series.waves import waves

        count, part = built_in_split(*made, split)
        drawn = waves(count, seed=seed, split=part)
        if read.labels is False:
            drawn.labels, drawn.classes = None, None
        return drawn
    if is_object(spec):
        return _of_object(str(spec), read, split, classes)
    path = series_file(Path(spec).expanduser(), split)
    return _of_rows(read_series(path, label=read.label_column, group=read.group_column), str(path), read, classes)


def _of_rows(rows: Rows, where: str, read: ReadConfig, classes: Sequence[str] | None) -> SeriesDataset:
    rows = rows.with_usual_channels()
    if rows.skipped and (read.strict or not rows.values):
        raise ValueError(f"{rows.skipped[0].path} of {where} cannot be used: {rows.skipped[0].reason}")
    if not rows.values:
        raise ValueError(f"{where} has no series, expected one for each row")
    labels, names = (None, None) if read.labels is False else _numbered(rows.labels, classes)
    grouped = any(group is not None for group in rows.groups)
    return SeriesDataset(
        _together(rows.values),
        labels=labels,
        classes=names,
        groups=numbered_groups(rows.groups) if grouped else None,
        names=rows.names,
        skipped=rows.skipped,
    )


def _of_object(spec: str, read: ReadConfig, split: str | None, classes: Sequence[str] | None) -> SeriesDataset:
    """Series of a registered object: an array (N, T) or (N, C, T), or samples (T,) or (C, T) of any lengths."""
    if split is not None:
        raise ValueError(f"{spec} has no split {split!r}; give the parts as data={{'path': ..., 'test': ...}}")
    data: ObjectData = find_object(spec, "data")
    given = data.as_arrays()
    wrong = next((each.shape for each in given if each.ndim not in (1, 2) or not each.size), None)
    if wrong is not None:
        raise ValueError(f"a series of {spec} has shape {wrong}, expected (T,) or (C, T)")
    labels = None if read.labels is False else data.facts()[0]
    rows = Rows()
    for row, each in enumerate(given):
        rows.add(str(row), partial(each.reshape, -1, each.shape[-1]), None if labels is None else labels[row])
    return _of_rows(rows, spec, read, classes)


def is_series(sample: Any) -> bool:
    """Whether a sample in memory is a series: numbers (T,) or (C, T), not as an image has them."""
    return isinstance(sample, np.ndarray | Tensor) and sample.ndim in (1, 2)


def has_series_splits(spec: str | Path) -> bool:
    """Whether there is a training and a test part: waves, NAME_TRAIN beside NAME_TEST, or a folder of such two."""
    if built_in(spec, BUILT_IN) is not None:
        return True
    path = Path(spec).expanduser()
    if path.is_dir():
        return all(len(_parts_in(path, part)) == 1 for part in ("train", "test"))
    named = _PART.match(path.stem)
    return named is not None and named[2].lower() == "train" and _sibling(path, "test") is not None


def series_file(path: Path, split: str | None) -> Path:
    """The file of a split: in a folder, or beside the one that is named."""
    if path.is_dir():
        found = _parts_in(path, split or "train")
        if len(found) != 1:
            what = f"{len(found)} files NAME_{(split or 'train').upper()}"
            raise ValueError(f"{path} has {what}, expected one, with {' or '.join(SUFFIXES)}; name the file itself")
        return found[0]
    if not path.is_file():
        close = nearest(str(path), ["waves"])
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}, nor built-in series of that name{close}")
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} is not a file of series, expected one of {', '.join(SUFFIXES)}")
    named = _PART.match(path.stem)
    if split is None or (named is not None and named[2].lower() == split):
        return path
    other = _sibling(path, split)
    if other is None:
        raise ValueError(f"{path} has no split {split!r}, expected a file NAME_{split.upper()} beside it")
    return other


def _together(values: Sequence[Values]) -> Tensor:
    """(N, C, T), NaN behind the end of the shorter ones."""
    longest = max(each.shape[1] for each in values)
    whole = np.full((len(values), len(values[0]), longest), np.nan, np.float32)
    for row, each in enumerate(values):
        whole[row, :, : each.shape[1]] = each
    return torch.from_numpy(whole)


def _numbered(values: Sequence[object], classes: Sequence[str] | None) -> tuple[Tensor | None, list[str] | None]:
    """(N,) labels and their names, numbers in their order: UCR's go from -1, from 0 or from 1."""
    texts = [None if _absent(value) else _name(value) for value in values]
    known = sorted({text for text in texts if text is not None}, key=_order)
    if not known:
        return None, None
    return numbered_labels(texts, list(classes) if classes is not None else known)


def _absent(value: object) -> bool:
    return value is None or str(value).strip().lower() in MISSING


def _name(value: object) -> str:
    """
    >>> _name("1.0000000e+00"), _name("-1"), _name("walk")
    ('1', '-1', 'walk')
    """
    text = str(value).strip()
    number = number_in(text)
    return str(int(number)) if number is not None and number.is_integer() else text


def _order(name: str) -> tuple[bool, float, str]:
    number = number_in(name)
    return number is None, number or 0.0, name


def _parts_in(folder: Path, part: str) -> list[Path]:
    files = (file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    return [file for file in sorted(files) if (named := _PART.match(file.stem)) and named[2].lower() == part]


def _sibling(path: Path, part: str) -> Path | None:
    """The file of the other part beside one, written as that is."""
    named = _PART.match(path.stem)
    if named is None:
        return None
    other = part.upper() if named[2].isupper() else part.capitalize() if named[2][0].isupper() else part
    file = path.with_name(f"{named[1]}_{other}{path.suffix}")
    return file if file.is_file() else None


_LOOKS = re.compile(r"waves(:\d+)?|.*\.ts|.*_(train|test)\.(tsv|csv|npz)", re.IGNORECASE)


def looks_like_series(spec: str) -> bool:
    """Whether a name or path is of series: built in, .ts, or NAME_TRAIN and NAME_TEST as in the UCR archive.

    Tables of photos and of sentences are called so, too: what is in a table that is there decides.

    >>> looks_like_series("waves"), looks_like_series("ECG200_TRAIN.tsv"), looks_like_series("photos/")
    (True, True, False)
    """
    if _LOOKS.fullmatch(spec) is None:
        return False
    file = table_file(spec)
    return file is None or has_series(file)
