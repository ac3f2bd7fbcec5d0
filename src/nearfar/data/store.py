"""Decoded samples in a folder of the cache: their values, and a journal of which of them are whole."""

import errno
import json
import os
import shutil
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.data.cache import VARIABLE, replacing
from nearfar.data.row_sums import BROKEN, DONE, TODO
from nearfar.data.sources import KEY

CHECKED_BYTES = (
    64 << 20
)  # of a finished pack, read again at each start to see that it is sound; `RowSums` does the rest
FULL = (errno.ENOSPC, errno.EDQUOT)
JOURNAL = [("state", "u1"), ("sum", "<u4"), ("key", f"V{KEY}")]


class NoSpaceError(OSError):
    """The disk is full; what is packed stays."""


class Store(ABC):
    """A folder with values, a journal of which rows are whole, and the reasons of those that never will be."""

    unit: ClassVar[str]  # of the size, for the progress bar
    ROW: ClassVar[np.dtype[np.void]] = np.dtype(JOURNAL)  # the journal's line for each sample

    def __init__(self, folder: Path, size: int, rows: NDArray[np.void]) -> None:
        self.folder, self.size, self.rows = folder, size, rows
        self.reasons: dict[int, str] = {}

    @classmethod
    def opened(cls, folder: Path, keys: NDArray[np.void], size: int) -> Self:
        """What is there and sound, else an empty one."""
        try:
            rows = np.load(folder / "rows.npy", allow_pickle=False)
            if rows.dtype != cls.ROW or len(rows) != len(keys):
                raise ValueError("not what was written")
            store = cls(folder, size, rows)
            store._open()
            reasons = json.loads((folder / "broken.json").read_text())
            # Written before the journal: a kill between the two leaves reasons the journal does not know of.
            store.reasons = {int(i): str(reason) for i, reason in reasons.items() if rows["state"][int(i)] == BROKEN}
            store._check()
        except NoSpaceError:
            raise
        except (OSError, ValueError, AttributeError, EOFError, IndexError):
            rows = np.zeros(len(keys), cls.ROW)
            rows["key"] = keys
            store = cls(folder, size, rows)
            store._make()
        return store

    @abstractmethod
    def _open(self) -> None:
        """The values that are there; ValueError or OSError where they are not what was written."""

    @abstractmethod
    def _make(self) -> None:
        """Room for values, empty."""

    @abstractmethod
    def put(self, row: int, sample: Any) -> int:
        """Write a sample, and return its sum; from any thread."""

    @abstractmethod
    def get(self, row: int) -> NDArray[Any]:
        """The values of a sample."""

    def _take(self, mine: int, other: Self, theirs: int) -> None:
        """Copy a sample from another store."""
        self.put(mine, other.get(theirs))

    @abstractmethod
    def _flush(self) -> None: ...

    def _check(self) -> None:
        """Compare samples with their sums; those that differ are to be done again."""
        done = np.flatnonzero(self.rows["state"] == DONE)
        budget = max(CHECKED_BYTES // max(self._bytes(done), 1), 1)
        whole = len(done) == np.count_nonzero(self.rows["state"] != BROKEN)
        some = done[np.linspace(0, len(done) - 1, budget, dtype=int)] if whole and len(done) > budget else done
        if not all(map(self._sound, some.tolist())):
            bad = [row for row in done.tolist() if not self._sound(row)]
            self.rows["state"][bad] = TODO

    @abstractmethod
    def _bytes(self, rows: NDArray[np.int64]) -> int:
        """Of one sample, about."""

    def _sound(self, row: int) -> bool:
        return bool(zlib.crc32(self.get(row).tobytes()) == self.rows["sum"][row])

    def note(self, done: Sequence[tuple[int, int]], broken: dict[int, str]) -> None:
        for row, checksum in done:
            self.rows["sum"][row] = checksum
            self.rows["state"][row] = DONE
        self.rows["state"][list(broken)] = BROKEN
        self.reasons |= broken

    def save(self) -> None:
        """Values before the journal that vouches for them."""
        self._flush()
        with replacing(self.folder / "broken.json") as fresh:
            fresh.write_text(json.dumps(self.reasons))
        with replacing(self.folder / "rows.npy") as fresh:
            np.save(fresh, self.rows)

    def take_from_others(self, todo: NDArray[np.int64]) -> None:
        """Copy from earlier packs of the same source what has not changed since."""
        wanted = {bytes(self.rows["key"][row]): int(row) for row in todo}
        for place in _siblings(self.folder):
            try:
                rows = np.load(place / "rows.npy", allow_pickle=False)
                other = type(self)(place, self.size, rows)
                if rows.dtype != self.ROW:
                    continue
                other._open()
            except (OSError, ValueError):
                continue
            for theirs in np.flatnonzero(rows["state"] == DONE):
                mine = wanted.get(bytes(rows["key"][theirs]))
                if mine is not None and self.rows["state"][mine] == TODO:
                    self._take(mine, other, int(theirs))
                    self.rows["sum"][mine] = rows["sum"][theirs]
                    self.rows["state"][mine] = DONE if self._sound(mine) else TODO


def _siblings(folder: Path) -> Iterator[Path]:
    """Latest first."""
    others = [(path.stat().st_mtime, path.parent) for path in folder.parent.glob("*/rows.npy")]
    yield from (other for _, other in sorted(others, reverse=True) if other != folder)


def reserve(path: Path, size: int) -> None:
    """Give a file that is to be mapped its room on the disk: writing to a hole of a full disk kills the process."""
    if not hasattr(os, "posix_fallocate"):
        return
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in FULL:
                return  # a file system that cannot
            free = shutil.disk_usage(path.parent).free
            raise NoSpaceError(
                f"{path} needs {size / 1e9:.2f} GB, and the disk has {free / 1e9:.2f} GB left: free some space, or set "
                f"{VARIABLE} to another folder"
            ) from None


def check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"the pack needs {needed / 1e9:.1f} GB in {folder}, {free / 1e9:.1f} GB are free; "
            f"free some space, lower the size, stream the data (--data.stream true) or set {VARIABLE} to another folder"
        )
