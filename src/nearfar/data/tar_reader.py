"""Members of tar files by number, read in place."""

import errno
import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from threading import Lock

from nearfar.data.retry import retried

OPEN = 32  # shards that stay open, so that a picture costs one system call
GIVEN_UP = 3  # samples in a row that could not be read, after which a shard's are tried once each


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member's bytes are, in which state of the shard."""

    shard: Path
    start: int
    size: int
    state: str


class Members:
    """Pictures by number, read out of their shards when they are needed; nothing is unpacked to the disk.

    A read that fails is tried again, with pauses. A shard that fails again and again is broken or gone: its samples are
    then tried once each, so that they cost no time, and are there again when it is.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        self._open: OrderedDict[Path, FileIO] = OrderedDict()
        self._failed: Counter[Path] = Counter()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int, /) -> bytes:
        place = self.places[index]
        try:
            given_up = self._failed[place.shard] >= GIVEN_UP
            content = self._read(place) if given_up else retried(lambda: self._read(place))
        except OSError:
            self._failed[place.shard] += 1
            raise
        self._failed[place.shard] = 0
        return content

    def _read(self, place: Place) -> bytes:
        try:
            content = _read_at(self._file(place.shard), place.start, place.size)
        except OSError:
            with self._lock:
                self._open.pop(place.shard, None)  # its handle may be stale: the next try opens it anew
            raise
        if len(content) < place.size:
            raise OSError(errno.EIO, f"{place.shard.name} ends before byte {place.start + place.size:,}")
        return content

    def _file(self, shard: Path) -> FileIO:
        """One that is left out of the dictionary is closed when the last thread that reads from it lets it go."""
        with self._lock:
            if shard in self._open:
                self._open.move_to_end(shard)
                return self._open[shard]
        file = shard.open("rb", buffering=0)
        with self._lock:
            kept = self._open.setdefault(shard, file)
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
            return kept


def _read_at(file: FileIO, start: int, size: int) -> bytes:
    """From any thread: without a place in the file that all of them share."""
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), size, start)
    with Path(str(file.name)).open("rb") as own:
        own.seek(start)
        return own.read(size)
