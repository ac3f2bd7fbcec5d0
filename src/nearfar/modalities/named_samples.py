"""Samples by their names, one at a time. Names may come from anyone's file: none may lead out of the data's folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from nearfar.data.downloads import no_downloads
from nearfar.data.sources import split_folder
from nearfar.data.tables import READERS, path_and_rows

if TYPE_CHECKING:
    from nearfar.modalities.base import Modality


class SamplesByRow(NamedTuple):
    """Named samples that are read one by one."""

    names: Sequence[str]
    read: Callable[[int, Path | None], Tensor]  # a row, and the folder that its file must be in, to the raw sample


class NamedSamples:
    """The samples of a data set by their names.

    Args:
        modality: reads them.
        data: a folder, a table, or the name of built-in data; None if it is not known.
        split: as `Modality.open` takes it.
        within: a folder that no file may leave, whatever the data name.
    """

    def __init__(
        self, modality: Modality, data: str | None, split: str | None = None, within: Path | None = None
    ) -> None:
        self.modality, self.data, self.split, self.within = modality, data, split, within
        file = None if data is None else Path(path_and_rows(data)[0]).expanduser()
        self.path = file if file is not None and file.exists() else None
        self._lock = threading.Lock()
        self._source: SamplesByRow | None = None
        self._row_of: dict[str, int] = {}

    @property
    def root(self) -> Path | None:
        """The folder that nothing leaves: of a table its own, of COCO's captions the one above their own."""
        if self.path is None or self.path.is_dir():
            return self.path
        folder = self.path.absolute().parent
        return folder.parent if self.path.suffix.lower() == ".json" else folder

    def read(self, name: str) -> Tensor:
        """The raw sample of that name.

        Raises:
            OSError, ValueError and what decoders raise: why there is none.
        """
        if self._files:
            assert self.path is not None
            if self.path.is_dir():
                folder = self.path if self.split is None else split_folder(self.path, self.split)
                return self.modality.read(self._checked(folder, inside(folder, name)))
            return self._read_of_table(name)
        source = self.open()
        if source is None or name not in self._row_of:
            raise ValueError(f"there is no {name!r} in {self.data}")
        with self._lock:  # what holds the samples may not be made for threads
            return source.read(self._row_of[name], self.within or self.root)

    def _checked(self, folder: Path, path: Path) -> Path:
        return checked(folder if self.within is None else self.within, checked(folder, path))

    @property
    def _files(self) -> bool:
        """Whether each name is that of a file, so that nothing else need be opened."""
        if self.path is None or not self.modality.walks_folders:
            return False
        if self.path.is_dir():
            return not _holds_tables(self.path)
        return self.path.suffix.lower() in (".csv", ".tsv", ".jsonl") or (
            self.path.suffix.lower() in READERS and not _holds_tables(self.path)
        )

    def _read_of_table(self, name: str) -> Tensor:
        """A file that a table names, relative or in full, below the table's folder or `data.root`."""
        assert self.path is not None
        folder = self.modality.config.data.folder or self.path.absolute().parent
        try:
            return self.modality.read(self._checked(folder, folder / name))
        except OutsideError:
            raise ValueError(
                f"it lies outside of {folder}, and only files of the table's folder are shown: move the table above "
                "its files, or train with --data.root FOLDER"
            ) from None

    def open(self) -> SamplesByRow | None:
        """Open the data, once; None if they are files, which are read one by one.

        Raises:
            OSError, ValueError: where the data cannot be found.
        """
        if self.data is None:
            raise ValueError(
                "the file of embeddings does not say where its samples are, or names a place outside its own folder "
                "and was not written by you on this machine; give --data"
            )
        if self._files:
            return None
        with self._lock:
            if self._source is None:
                with no_downloads():
                    self._source = self.modality.source(self.data, self.split)
                self._row_of = {each: row for row, each in enumerate(self._source.names)}
            return self._source


class OutsideError(ValueError):
    """A path that leads out of the folder of the data."""


def _holds_tables(path: Path) -> bool:
    """Whether the images are in tables, as Hugging Face's, and no files."""
    from nearfar.modalities.image.data.hugging_face import image_tables

    return bool(image_tables(path))


def inside(folder: Path, name: str) -> Path:
    """The file of that name in the folder; a name that leads out of it is an error.

    >>> inside(Path("photos"), "a/b.jpg").as_posix()
    'photos/a/b.jpg'
    """
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or "\\" in name or "\0" in name or Path(name).drive:
        raise ValueError("the name leads out of the folder of the data, expected one below it")
    return folder / name


def checked(folder: Path, path: Path) -> Path:
    """The file without links, if it is in the folder."""
    real = path.resolve(strict=True)
    if not real.is_relative_to(folder.resolve(strict=True)):
        raise OutsideError("the path leads out of the folder of the data, expected one below it")
    if not real.is_file():
        raise ValueError("it is not a file")
    return real
