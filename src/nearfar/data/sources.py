"""Where samples come from, before any of them is decoded."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data import tables
from nearfar.data.class_folders import SPLIT_NAMES, Level, class_folders, folder_label, split_names
from nearfar.data.columns import label_column, nearest
from nearfar.data.dataset import Captions, Facts, Skipped, picked
from nearfar.data.rows import RowSamples

TEST_FOLDERS = ("test", "val", "valid", "validation")  # beside train/
KEY = 16  # bytes that stand for one sample in the cache


class Items(Protocol):
    """Undecoded samples by number: arrays, Pillow images, or the bytes of a file."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class MadeItems:
    """Undecoded samples that a function makes, by number."""

    count: int
    make: Callable[[int], Any]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int, /) -> Any:
        return self.make(index)


@dataclass(frozen=True, eq=False)
class Source:
    """N samples before any is decoded: either files, or what some loader holds in memory.

    Attributes:
        description: what it is, for messages and for the cache.
        names: N texts, where each sample came from.
        paths: N files, or None.
        load: gives the N undecoded samples where there are no paths; called when the first is needed.
        version: changes when the samples behind `load` do.
        versions: N texts, each of which changes when its sample behind `load` does; None: its number.
        labels, classes, groups, captions: as in `Dataset`.
        skipped: samples that were left out before any was decoded.
        size: of images, the side to store them at where none is asked for: their own if all are squares of one size.
        parts: (N,) the number of the shard that each is in, or None.
        transient: whether the samples are objects of this process, which the cache cannot tell from others.
    """

    description: str
    names: Sequence[str]
    paths: Sequence[Path] | None = None
    load: Callable[[], Items] | None = None
    version: str = ""
    versions: Sequence[str] | None = None
    labels: Tensor | None = None
    classes: list[str] | None = None
    groups: Tensor | None = None
    captions: Captions | None = None
    skipped: Sequence[Skipped] = ()
    size: int | None = None
    parts: Tensor | None = None
    transient: bool = False

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def items(self) -> Items:
        """What `load` gives: undecoded samples in memory, by number."""
        if self.load is None:
            raise ValueError(f"{self.description} has files, not samples in memory")
        return self.load()

    def read(self, index: int, size: int) -> Any:
        """Sample `index`, decoded; a modality's own source says how, and what `size` means."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its samples are decoded")

    def load_all(self) -> None:
        """Load what is held in memory, once, before several threads read."""
        if self.paths is None:
            _ = self.items

    def keys(self) -> NDArray[np.void]:
        """(N,) of KEY bytes: a file's path, length and time of change, or the version and number of a picture."""
        if self.paths is None:
            stem = f"{self.description}\0{self.version}\0".encode(errors="surrogateescape")
            each = map(str, range(len(self))) if self.versions is None else iter(self.versions)
            texts: Iterator[bytes] = (stem + one.encode(errors="surrogateescape") for one in each)
        else:
            texts = map(_file_state, self.paths)
        digests = b"".join(hashlib.blake2b(text, digest_size=KEY).digest() for text in texts)
        return np.frombuffer(digests, f"V{KEY}")

    def facts(self, rows: Tensor, skipped: Sequence[Skipped] = ()) -> Facts:
        """What is known of the samples (K,) `rows`, for a `Dataset` of them."""
        labels, groups, captions, names = (
            picked(x, rows) for x in (self.labels, self.groups, self.captions, self.names)
        )
        return Facts(
            labels=labels, classes=self.classes, groups=groups, captions=captions, names=names, skipped=skipped
        )

    def fingerprint(self) -> str:
        """Changes when any sample does, or their order."""
        return hashlib.blake2b(self.keys().tobytes(), digest_size=KEY).hexdigest()


def _file_state(path: Path) -> bytes:
    try:
        state = path.stat()
    except (OSError, ValueError):  # ValueError: a name with a zero byte
        return os.fsencode(path) + b"\0missing"
    return os.fsencode(path) + f"\0{state.st_size}\0{state.st_mtime_ns}".encode()


AnySource = TypeVar("AnySource", bound=Source)


def from_samples(kind: type[AnySource], description: str, found: RowSamples, **how: Any) -> AnySource:
    """A source of the rows of a table; `how` gives the files or samples they are about, as fields of `Source`."""
    known = {name: column for name, column in vars(found).items() if name != "rows"}
    return kind(description, **known, **how)


def folder_source(
    kind: type[AnySource],
    folder: Path,
    *,
    what: str,
    suffixes: frozenset[str],
    unread: frozenset[str] = frozenset(),
    labels: bool | Level = False,
    classes: Sequence[str] | None = None,
    split: str | None = None,
) -> AnySource:
    """Every file with one of the suffixes below a folder, in sorted order; hidden files and folders are skipped.

    Args:
        what: noun for messages, "image" or "sound".
        unread: suffixes of other kinds, which are listed as skipped unless a file of that name is read, as the JPEG
            beside a raw photo.
        labels: the folder whose name is the label; True: as `class_folders` chooses. Folders of splits are no labels.
    """
    splits = () if split is not None else tuple(split_names(folder).values())
    if split is not None:
        folder = split_folder(folder, split)
    faults: list[Skipped] = []
    found_files = sorted(walk(folder, suffixes | unread, faults), key=lambda path: path.relative_to(folder).parts)
    paths = [path for path in found_files if path.suffix.lower() in suffixes]
    twins = {path.with_suffix("") for path in paths}
    for path in found_files:
        if path.suffix.lower() not in suffixes and path.with_suffix("") not in twins:
            reason = f"{path.suffix.lower()} files are not read: convert it to JPEG, PNG or TIFF"
            faults.append(Skipped(path.relative_to(folder).as_posix(), reason))
    if not paths:
        first = f"; {faults[0].path} cannot be looked at: {faults[0].reason}" if faults else ""
        if (folder / "data.mdb").is_file():
            first = "; it is an LMDB, which has no usual form: give nearfar.train a torch Dataset that reads it"
        if beside := sorted(path.name for path in folder.iterdir() if path.suffix.lower() in tables.READERS):
            first = f"; it holds tables ({', '.join(beside[:3])}): give one of these files, and --data.test another"
        expected = ", ".join(sorted(suffixes))
        raise ValueError(f"there is no {what} in {folder}, expected {expected} at any depth{first}")
    names = [path.relative_to(folder).as_posix() for path in paths]
    numbers, found = None, None
    if labels:
        known = class_folders(names, splits, None if labels is True else labels)
        level = known.level if known is not None else "top" if labels is True else labels
        parents = [folder_label(name, level, splits) for name in names]
        if not any(parents):
            raise ValueError(f"{folder} has no sub-folders with {what}s to take labels from; leave labels off")
        # A folder called "7" is a name, not the number 7: ["0", "2"] must not gain a class "1".
        numbers, found = label_column(parents, classes or sorted({parent for parent in parents if parent}))
    return kind(f"folder {folder}", names, paths, labels=numbers, classes=found, skipped=faults)


def split_folder(folder: Path, split: str) -> Path:
    """The sub-folder of a split, under one of its usual names."""
    if (folder / split).is_dir():
        return folder / split
    there = sorted(entry.name for entry in folder.iterdir() if is_folder(entry) and not entry.name.startswith("."))
    usual = next((names for names in SPLIT_NAMES.values() if split.lower() in names), ())
    for name in usual:
        if found := next((entry for entry in there if entry.lower() == name), None):
            return folder / found
    if "=" in split:
        raise ValueError(f"{split!r} asks for a column; a folder has columns only with --data.pattern: set it")
    raise ValueError(f"{folder} has no sub-folder for the split {split!r}{nearest(split, there)}")


def walk(folder: Path, suffixes: frozenset[str], faults: list[Skipped] | None = None) -> Iterator[Path]:
    """The files below a folder whose names end so; hidden ones are left alone, and no folder is visited twice.

    Args:
        faults: is told of folders and links that cannot be looked at, which are left out; the folder itself must be
            readable.
    """
    yield from _walk(folder, suffixes, set(), [] if faults is None else faults, folder)


def _walk(
    folder: Path, suffixes: frozenset[str], seen: set[tuple[int, int]], faults: list[Skipped], top: Path
) -> Iterator[Path]:
    try:
        state = folder.stat()
        if (state.st_dev, state.st_ino) in seen:  # a link that leads back, or to what was visited
            return
        seen.add((state.st_dev, state.st_ino))
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        if folder == top:
            raise
        # What was in it is not known.
        faults.append(Skipped(folder.relative_to(top).as_posix(), error.strerror or str(error), None))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = Path(entry.path)
        try:
            deeper = entry.is_dir()
        except OSError as error:  # a link to itself, or to where one may not look
            faults.append(Skipped(path.relative_to(top).as_posix(), error.strerror or str(error)))
            continue
        if deeper:
            yield from _walk(path, suffixes, seen, faults, top)
        elif path.suffix.lower() in suffixes:
            yield path


def built_in(spec: str | Path, known: Mapping[str, int]) -> tuple[str, int] | None:
    """Which data made by code are meant, and how many samples of them; None: something else, as a path of that name is.

    Args:
        known: their names, and how many there are where it is not said.

    >>> [built_in(spec, {"waves": 4000}) for spec in ("waves:500", "waves", "waves.csv")]
    [('waves', 500), ('waves', 4000), None]
    """
    made = re.fullmatch(rf"({'|'.join(known)})(?::(\d+))?", str(spec))
    return None if made is None or Path(spec).exists() else (made[1], int(made[2] or known[made[1]]))


def built_in_split(name: str, count: int, split: str | None) -> tuple[int, Literal["train", "test"]]:
    """How many samples a split of data made by code has, and the split: a fifth as many for the test."""
    if split not in (None, "train", "test"):
        raise ValueError(f"{name} have the splits 'train' and 'test', not {split!r}")
    return (max(count // 5, 1), "test") if split == "test" else (count, "train")


def check_apart(folder: Path, data: str | Path) -> None:
    """Refuse to write into a folder of samples: what is written there would be taken for some, or lie among them."""
    place = Path(tables.path_and_rows(data)[0]).expanduser()
    if is_folder(place) and folder.expanduser().resolve().is_relative_to(place.resolve()):
        raise FileExistsError(f"{folder} is in the data {data}, expected a folder outside of them: give another one")


def folder_splits(folder: str | Path) -> tuple[str, str] | None:
    """The names of the training and the test part where a folder has them as sub-folders."""
    found = split_names(folder)
    return (found["train"], found.get("test", found.get("validation", ""))) if found else None


def is_folder(path: Path) -> bool:
    """Also of what one may not look at, which is none."""
    try:
        return path.is_dir()
    except OSError:
        return False
