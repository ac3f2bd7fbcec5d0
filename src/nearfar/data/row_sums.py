"""The sums of a pack's rows, compared when a row is first read."""

import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.cache import VARIABLE, locked, replacing

TODO, DONE, BROKEN = 0, 1, 2  # states of a row in a pack's journal


class RowSums:
    """Compares each row of a finished pack with its sum when it is first read: a disk may change what it holds.

    Args:
        folder: of the pack.
        sums: of all its rows, as `Store.put` returned them.
    """

    def __init__(self, folder: Path, sums: NDArray[np.uint32]) -> None:
        self.folder, self._sums = folder, sums
        self._sound = np.zeros(len(sums), np.bool_)

    def check(self, rows: NDArray[np.int64], samples: Iterable[NDArray[Any]]) -> None:
        """Raise where a sample is not what was written; `samples` are those of the rows."""
        if self._sound[rows].all():
            return
        for row, sample in zip(rows.tolist(), samples, strict=True):
            if not self._sound[row]:
                if zlib.crc32(np.ascontiguousarray(sample).data) != self._sums[row]:
                    self._forget(row)
                self._sound[row] = True

    def _forget(self, row: int) -> None:
        """Have the next start decode the row again."""
        with suppress(OSError, ValueError), locked(self.folder):
            rows = np.load(self.folder / "rows.npy", allow_pickle=False)
            rows["state"][row] = TODO
            with replacing(self.folder / "rows.npy") as fresh:
                np.save(fresh, rows)
        raise OSError(
            f"sample {row} of the pack {self.folder} is not what was written there: is the disk failing? Start again, "
            f"or continue with --resume: the sample is decoded again. If this repeats, set {VARIABLE} to another disk"
        )
