"""Where samples come from, before any of them is decoded."""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from nearfar.data import tables
from nearfar.data.columns import label_column, nearest
from nearfar.data.dataset import Captions, Skipped
from nearfar.data.retry import retried
from nearfar.data.rows import Samples, Wanted
from nearfar.modalities.image.data.decode import SUFFIXES, decode, squared

SPLIT_FOLDERS = {"val": ("val", "valid", "validation"), "validation": ("validation", "valid", "val")}
TEST_FOLDERS = ("test", "val", "valid", "validation")  # beside train/
KEY = 16  # bytes that stand for one sample in the cache


class Images(Protocol):
    """Pictures by number: arrays (H, W) or (H, W, C) uint8, Pillow's, or the bytes of a file."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> NDArray[np.uint8] | Image.Image | bytes: ...


@dataclass(frozen=True, eq=False)
class Source:
    """N samples: either files, or pictures that some loader holds.

    Attributes:
        description: what it is, for messages and for the cache.
        names: N texts, where each sample came from.
        paths: N files, or None.
        load: gives the N pictures where there are no paths; called when the first is needed.
        version: changes when the pictures behind `load` do.
        versions: N texts, each of which changes when its picture behind `load` does; by its number where None.
        labels, classes, groups, captions: as in `Dataset`.
        skipped: samples that were left out before any was decoded.
        size: side to store the pictures at where none is asked for: their own where all are squares of one size.
        parts: (N,) the number of the shard that each is in, or None.
    """

    description: str
    names: Sequence[str]
    paths: Sequence[Path] | None = None
    load: Callable[[], Images] | None = None
    version: str = ""
    versions: Sequence[str] | None = None
    labels: Tensor | None = None
    classes: list[str] | None = None
    groups: Tensor | None = None
    captions: Captions | None = None
    skipped: Sequence[Skipped] = ()
    size: int | None = None
    parts: Tensor | None = None

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def images(self) -> Images:
        if self.load is None:
            raise ValueError(f"{self.description} has files, not pictures in memory")
        return self.load()

    def read(self, index: int, size: int) -> NDArray[np.uint8]:
        """Sample `index` as (size, size, 3); raises what `decode.why` can explain."""
        if self.paths is not None:
            path = self.paths[index]
            return retried(lambda: decode(path, size))
        image = self.images[index]
        if isinstance(image, bytes):
            return decode(io.BytesIO(image), size)
        return squared(image if isinstance(image, Image.Image) else as_picture(image), size)

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

    def fingerprint(self) -> str:
        """Changes when any sample does, or their order."""
        return hashlib.blake2b(self.keys().tobytes(), digest_size=KEY).hexdigest()


def _file_state(path: Path) -> bytes:
    try:
        state = path.stat()
    except (OSError, ValueError):  # ValueError: a name with a zero byte
        return os.fsencode(path) + b"\0missing"
    return os.fsencode(path) + f"\0{state.st_size}\0{state.st_mtime_ns}".encode()


def as_picture(image: NDArray[np.uint8]) -> Image.Image:
    """(H, W), (H, W, 1), (H, W, 3) or (H, W, 4)."""
    return Image.fromarray(image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image)


def open_source(
    spec: str | Path,
    *,
    labels: bool | None = None,
    classes: Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    caption_column: str | None = None,
    captions: bool | None = None,
    split: str | None = None,
    root: Path | None = None,
    index: Path | None = None,
) -> Source:
    """What is at a path: a folder of images, a table (.csv, .tsv, .jsonl, .parquet), COCO's or Karpathy's
    captions (.json), shards (.tar, a pattern or a folder of them), or arrays (.npz, .npy).

    Several rows of a table with one path are one image with several captions where it has captions; so is a list in a
    cell. A caption that is empty, not UTF-8 or longer than `captions.LONGEST` is left out and listed in `skipped`.

    Args:
        spec: the path; a table's may end in ":column=value" or ":column!=value", which means those rows alone.
        labels: whether to read labels; None reads them where the source states them, which a folder does not: there
            True takes the first sub-folder's name.
        classes: names of the labels in the order to number them, such as those of the training data.
        path_column, label_column, group_column, caption_column: of a table; None looks for the usual names.
        captions: whether to read captions; None reads them where there are some, True makes their absence an error.
        split: a sub-folder, a value in the table's column "split" ("vendor=noto" and "vendor!=noto" ask another), or
            arrays named after it; None takes all, and what the path itself says goes first.
        index: folder to keep a list of the members of shards in.
        root: folder that the paths of a table or of captions start from; beside the file where None.
    """
    from nearfar.modalities.image.data.shards import is_shards, shard_source

    spec, rows = tables.path_and_rows(spec)
    path, split = Path(spec).expanduser().absolute(), rows or split
    wanted = Wanted(path_column, label_column, group_column, caption_column, split, labels, captions, classes)
    if is_shards(path):
        return shard_source(path, wanted, index)
    if path.is_dir():
        return folder_source(path, labels=bool(labels), classes=classes, split=split)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(spec)!r}")
    tables.regular(path)
    kind, part = path.suffix.lower(), f" ({split})" if split else ""
    if kind in tables.READERS:
        found = tables.read(path, wanted)
        folder = path.parent if root is None else root.expanduser().absolute()
        return from_samples(f"table {path}{part}", found, paths=[folder / name for name in found.names])
    if kind == ".json":
        from nearfar.modalities.image.data.caption_json import read_captions

        found, paths = read_captions(path, wanted, root)
        return from_samples(f"captions {path}{part}", found, paths=paths)
    if kind in (".npz", ".npy"):
        from nearfar.modalities.image.data.arrays import array_source

        return array_source(path, labels=labels, classes=classes, split=split)
    if kind in SUFFIXES:
        raise ValueError(f"{str(spec)!r} is one image, expected a folder of images: give its folder")
    known = ", ".join([*tables.READERS, ".json", ".tar", ".npz", ".npy"])
    raise ValueError(f"{str(spec)!r} is a {kind or 'file without a suffix'}, expected a folder or one of {known}")


def from_samples(
    description: str,
    found: Samples,
    *,
    paths: Sequence[Path] | None = None,
    load: Callable[[], Images] | None = None,
    versions: Sequence[str] | None = None,
    parts: Tensor | None = None,
) -> Source:
    """Rows and the files or pictures they are about."""
    return Source(
        description=description,
        names=found.names,
        paths=paths,
        load=load,
        versions=versions,
        labels=found.labels,
        classes=found.classes,
        groups=found.groups,
        captions=found.captions,
        skipped=found.skipped,
        parts=parts,
    )


def folder_source(
    folder: Path,
    *,
    labels: bool = False,
    classes: Sequence[str] | None = None,
    split: str | None = None,
    what: str = "image",
    suffixes: frozenset[str] = SUFFIXES,
) -> Source:
    """Every image below a folder, in sorted order; hidden files and folders are left alone.

    Args:
        what: the samples are, if not images, and by which `suffixes` they are known.
    """
    if split is not None:
        folder = _split_folder(folder, split)
    faults: list[Skipped] = []
    paths = sorted(walk(folder, suffixes, faults), key=lambda path: path.relative_to(folder).parts)
    if not paths:
        first = f"; {faults[0].path} cannot be looked at: {faults[0].reason}" if faults else ""
        expected = ", ".join(sorted(suffixes))
        raise ValueError(f"there is no {what} in {folder}, expected {expected} at any depth{first}")
    names = [path.relative_to(folder).as_posix() for path in paths]
    numbers, found = None, None
    if labels:
        parents = [name.split("/")[0] if "/" in name else None for name in names]
        if not any(parents):
            raise ValueError(f"{folder} has no sub-folders with {what}s to take labels from; leave labels off")
        # A folder called "7" is a name, not the number 7: ["0", "2"] must not gain a class "1".
        numbers, found = label_column(parents, classes or sorted({parent for parent in parents if parent}))
    return Source(f"folder {folder}", names, paths, labels=numbers, classes=found, skipped=faults)


def _split_folder(folder: Path, split: str) -> Path:
    for name in SPLIT_FOLDERS.get(split, (split,)):
        if (folder / name).is_dir():
            return folder / name
    there = sorted(entry.name for entry in folder.iterdir() if is_folder(entry) and not entry.name.startswith("."))
    if "=" in split:
        raise ValueError(f"{split!r} asks for a column, which a folder has by --sources.pattern alone: give one")
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


def check_apart(folder: Path, data: str | Path) -> None:
    """Refuse to write into a folder of samples: what is written there would be taken for some, or lie among them."""
    place = Path(tables.path_and_rows(data)[0]).expanduser()
    if is_folder(place) and folder.expanduser().resolve().is_relative_to(place.resolve()):
        raise FileExistsError(f"{folder} is in the data {data}, expected a folder outside of them: give another one")


def own_parts(folder: str | Path) -> tuple[str, str] | None:
    """The names of the training and the test part where a folder has them as sub-folders."""
    place = Path(folder).expanduser()
    test = next((name for name in TEST_FOLDERS if is_folder(place / name)), None)
    return ("train", test) if test is not None and is_folder(place / "train") else None


def is_folder(path: Path) -> bool:
    """Also of what one may not look at, which is none."""
    try:
        return path.is_dir()
    except OSError:
        return False
