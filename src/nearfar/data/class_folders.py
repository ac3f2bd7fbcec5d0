"""Folders whose names are labels: which level of nested folders is meant, and which folders are splits instead."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nearfar.messages import shorten

Level = Literal["leaf", "top", "path"]
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid"),
    "test": ("test", "testing"),
}
LEVELS: dict[Level, str] = {
    "top": "the first folder",
    "leaf": "the folder that a file is in",
    "path": "all folders above a file",
}
_SHOWN = 3  # classes in a line


@dataclass(frozen=True)
class ClassFolders:
    """The classes that folder names stand for.

    Attributes:
        level: which of the folders above a file is its label.
        counts: samples of each class, largest first.
        others: number of classes by the other levels, where it is another.
    """

    level: Level
    counts: dict[str, int]
    others: dict[Level, int]

    def __str__(self) -> str:
        shown = ", ".join(f"{shorten(name, 30)} {count:,}" for name, count in list(self.counts.items())[:_SHOWN])
        more = ", …" if len(self.counts) > _SHOWN else ""
        others = "".join(f"; --data.labels {level} makes {count:,}" for level, count in self.others.items())
        return f"{len(self.counts):,} classes by {LEVELS[self.level]} ({shown}{more}){others}"


def folder_label(name: str, level: Level, splits: Iterable[str] = ()) -> str | None:
    """The label in the name of a file below a folder; None of a file that lies in no folder.

    Args:
        name: relative to the folder, with slashes.
        splits: folders at the top that are splits, not labels.

    >>> [folder_label("pets/cat/1.jpg", level) for level in ("top", "leaf", "path")]
    ['pets', 'cat', 'pets/cat']
    >>> folder_label("train/cat/1.jpg", "top", ["train", "test"]), folder_label("1.jpg", "top")
    ('cat', None)
    """
    parts = name.split("/")[:-1]
    if parts and parts[0] in splits:
        parts = parts[1:]
    if not parts:
        return None
    return "/".join(parts) if level == "path" else parts[0 if level == "top" else -1]


def class_folders(names: Sequence[str], splits: Iterable[str] = (), level: Level | None = None) -> ClassFolders | None:
    """The classes of files: by the level asked for, else by the first folder, or the last one where all share a first.

    None where folders are no classes: fewer than two, or most with a single file.

    >>> class_folders(["all/cat/1.jpg", "all/cat/2.jpg", "all/dog/1.jpg", "all/dog/2.jpg"]).counts
    {'cat': 2, 'dog': 2}
    >>> class_folders(["a/1.jpg", "a/2.jpg"]) is None
    True
    """
    splits = tuple(splits)

    def counts(of: Level) -> dict[str, int]:
        labels = (folder_label(name, of, splits) for name in names)
        return dict(Counter(label for label in labels if label is not None).most_common())

    found = {each: counts(each) for each in LEVELS}
    chosen = level or next((each for each in ("top", "leaf") if len(found[each]) > 1), None)
    if chosen is None or len(found[chosen]) < 2 or 2 * len(found[chosen]) > sum(found[chosen].values()):
        return None
    others = {each: len(labels) for each, labels in found.items() if len(labels) not in (1, len(found[chosen]))}
    return ClassFolders(chosen, found[chosen], others)


def split_names(folder: str | Path) -> dict[str, str]:
    """The splits that a folder has as sub-folders, by "train", "validation" and "test", in any case of letters.

    Empty without one for training and one to test on: a class may be called test.
    """
    try:
        inside = sorted(entry.name for entry in os.scandir(Path(folder).expanduser()) if entry.is_dir())
    except OSError:
        return {}
    found: dict[str, str] = {}
    for split, names in SPLIT_NAMES.items():
        there = [name for usual in names for name in inside if name.lower() == usual]
        if there:
            found[split] = there[0]
    return found if "train" in found and len(found) > 1 else {}
