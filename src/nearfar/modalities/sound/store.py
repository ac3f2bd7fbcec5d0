"""Decoded sounds in the cache."""

import os
import zlib
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.data.row_sums import DONE
from nearfar.data.store import JOURNAL, Store


class Wave(NamedTuple):
    """A sound as it is stored."""

    values: NDArray[np.int16]  # (T,) at the store's rate
    clipped: bool = False  # the file's values were cut off at the top, which cannot be seen after resampling


class SoundStore(Store):
    """Sounds of any length at one rate, one after the other in `sounds.i16`, little-endian.

    The journal says where each begins and ends. What lies after the last that is whole is written over.
    """

    unit = "Hz"
    ROW = np.dtype([*JOURNAL, ("at", "<i8"), ("length", "<i8"), ("clipped", "?")])

    def __init__(self, folder: Path, size: int, rows: NDArray[np.void]) -> None:
        super().__init__(folder, size, rows)
        self._lock = Lock()
        self._end = 0

    @property
    def path(self) -> Path:
        return self.folder / "sounds.i16"

    def _open(self) -> None:
        done = self.rows[self.rows["state"] == DONE]
        self._end = int((done["at"] + done["length"]).max(initial=0))
        if self.path.stat().st_size < 2 * self._end:
            raise ValueError("not what was written")
        self._file = self.path.open("r+b")

    def _make(self) -> None:
        self.path.unlink(missing_ok=True)  # another run may still have the old file mapped
        self._file = self.path.open("w+b")

    def put(self, row: int, sample: Wave) -> int:
        content = sample.values.astype("<i2").tobytes()
        with self._lock:
            self.rows["at"][row], self.rows["length"][row] = self._end, len(sample.values)
            self.rows["clipped"][row] = sample.clipped
            self._file.seek(2 * self._end)
            self._file.write(content)
            self._end += len(sample.values)
        return zlib.crc32(content)

    def get(self, row: int) -> NDArray[np.int16]:
        with self._lock:
            self._file.seek(2 * int(self.rows["at"][row]))
            return np.frombuffer(self._file.read(2 * int(self.rows["length"][row])), "<i2").astype(np.int16)

    def _take(self, mine: int, other: Self, theirs: int) -> None:
        self.put(mine, Wave(other.get(theirs), bool(other.rows["clipped"][theirs])))

    def _flush(self) -> None:
        with self._lock:
            self._file.flush()
            os.fsync(self._file.fileno())

    def _bytes(self, rows: NDArray[np.int64]) -> int:
        return 2 * int(self.rows["length"][rows].mean()) if len(rows) else 1
