"""`nearfar.doctor`: what is wrong with a data set, before a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from nearfar.data.class_folders import Level
from nearfar.data.config import ReadConfig
from nearfar.data.python_data import DataSpec, ObjectData, as_data
from nearfar.data.python_parts import named_parts
from nearfar.data.sources import folder_splits
from nearfar.data.table_kind import has_paths, has_series, has_texts, table_file
from nearfar.doctor.examine import TINY, Diagnosis, ImageProblem, Leak, examine
from nearfar.doctor.summary import summary, write_findings
from nearfar.modalities.image.data.decode import SUFFIXES
from nearfar.modalities.image.data.opening import find_images
from nearfar.modalities.image.data.source import ImageSource
from nearfar.modalities.splits import folder_classes
from nearfar.notebook import Printed
from nearfar.python_objects import released_afterwards
from nearfar.search.index import Kind


class ImageReading(TypedDict, total=False):
    """How the data are read, as in `DataConfig`."""

    labels: bool | Level | None
    path_column: str | None
    label_column: str | None
    root: str | None


@dataclass(frozen=True)
class Examined(Printed):
    """What was found, in sentences; `problems` and `leaks` name each image.

    Attributes:
        diagnosis: everything that was found.
        written: the files, by "report", "groups", "problems" and "leaks"; empty if none were asked for.
        notes: what was compared, where that was not said.
        reading: how the data were read, the part of them included, as keywords of `Encoder.open`.
    """

    diagnosis: Diagnosis = field(repr=False)
    written: dict[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reading: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def problems(self) -> list[ImageProblem]:
        """Images that are broken, tiny, of one color, long, or have copies with another label."""
        return self.diagnosis.problems

    @property
    def leaks(self) -> list[Leak]:
        """Test images that are in the training data."""
        return self.diagnosis.leaks

    @property
    def groups(self) -> list[list[str]]:
        """The names of the images of each group of copies, largest first."""
        found: dict[int, list[str]] = {}
        for name, group in zip(self.diagnosis.names, self.diagnosis.groups.tolist(), strict=True):
            found.setdefault(group, []).append(name)
        return sorted((names for names in found.values() if len(names) > 1), key=len, reverse=True)

    def lines(self) -> list[str]:
        """A sentence for each thing worth knowing, and the files."""
        return [*self.notes, *summary(self.diagnosis), *(f"{name}: {path}" for name, path in self.written.items())]

    def shown(self) -> str:
        return "\n".join(self.lines())


def doctor(
    data: Any,
    *,
    test: Any = None,
    split: str | None = None,
    test_split: str | None = None,
    tiny: int = TINY,
    index: Kind = "exact",
    out: str | Path | None = None,
    progress: bool = True,
    **reading: Unpack[ImageReading],
) -> Examined:
    """Check every image of a data set: broken files, copies, tiny and plain images, classes, and leaks from a test set.

    Args:
        data: images, as `nearfar.train` takes them, splits {"train": ..., "test": ...} included. Of a folder with
            train/ and test/ the first is examined, and whether the other is in it, if neither `test` nor `split` is
            given.
        test: data that must not be in it.
        split, test_split: a part of the data, such as "train".
        tiny: pixels of the short side, below which an image is tiny.
        index: how near-duplicates are found: "exact", or "ivf" or "hnsw" of faiss.
        out: a folder for the findings as files, groups.csv for `data.groups_file` among them; None: nowhere.
        progress: show progress bars.
        reading: labels, path_column, label_column and root, as in `DataConfig`.
    """
    if not isinstance(tiny, int) or tiny < 0:
        raise ValueError(f"tiny is {tiny!r}, expected pixels, a whole number of at least 0")
    notes: tuple[str, ...] = ()
    with released_afterwards(ObjectData):
        if isinstance(data, Mapping) and set(parts := named_parts(data)) <= {"path", "test"}:
            data, test = parts.get("path"), parts.get("test") if test is None else test
        given = as_data(data)
        if split is None and test is None and (own := folder_splits(given.path)) is not None:
            (split, test_split), test = own, data
            notes = (
                f"{given.path} has {split}/ and {test_split}/: the first is examined, and whether the other is in it",
            )
        read = replace(ReadConfig(root=given.root), **reading)
        _check_images(given.path, read)
        if read.labels is None and (classes := folder_classes(given.path, SUFFIXES)) is not None:
            read = replace(read, labels=True)
            notes += (f"labels: {classes}",) if classes.others else ()
        train = find_images(given.path, read, split=split)
        other = None if test is None else _test_images(as_data(test), read, test_split)
        found = examine(train, other, tiny=tiny, index=index, progress=progress)
    written = {} if out is None else write_findings(found, Path(out).expanduser())
    return Examined(found, written, notes, {**reading, "labels": read.labels, "split": split})


def _check_images(path: str, read: ReadConfig) -> None:
    """Refuse a table of another kind, such as sentences."""
    file = table_file(path)
    if file is None or read.path_column is not None or has_paths(file):
        return
    kind = "sentences" if has_texts(file) else "series" if has_series(file) else None
    if kind is not None:
        raise ValueError(f"the doctor examines images, and {path} holds {kind}")


def _test_images(test: DataSpec, read: ReadConfig, split: str | None) -> ImageSource:
    return find_images(test.path, replace(read, labels=None, root=test.root or read.root), split=split)
