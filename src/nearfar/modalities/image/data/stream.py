"""Data that must not be packed: decoded anew at every look, behind the same interface."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.dataset import Dataset, Skipped
from nearfar.data.pack import cores
from nearfar.modalities.image.data.decode import why
from nearfar.modalities.image.data.source import ImageSource

GRAY = 128


class StreamDataset(Dataset):
    """A source, decoded in threads as it is asked for.

    Which files are broken shows only when they are read. To keep every sample's number what it is, such a sample is
    an even gray, and is listed in `skipped` from then on; with `strict` it is an error.

    Args:
        source: what to decode.
        size: side of the square image.
        rows: (N,) which of the source's samples, in order; all of them where None.
        strict: an unreadable file is an error.
        workers: threads; where None one fewer than there are cores, which is left to who uses the images.
    """

    def __init__(
        self,
        source: ImageSource,
        size: int,
        *,
        rows: Tensor | None = None,
        strict: bool = False,
        workers: int | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"size is {size}, expected at least 1 pixel")
        self.source, self.size, self.strict, self.workers = source, size, strict, workers
        self.rows = torch.arange(len(source)) if rows is None else rows
        self.describe(**source.facts(self.rows, source.skipped))  # and what is found unreadable later
        self.shards = None if source.parts is None else source.parts[self.rows]
        self._failed: dict[int, Skipped] = {}
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(workers or max(1, cores() - 1), thread_name_prefix="decode")

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, indices: Tensor) -> "StreamDataset":
        return StreamDataset(self.source, self.size, rows=self.rows[indices], strict=self.strict, workers=self.workers)

    def failed(self, indices: Tensor) -> dict[int, Skipped]:
        """Which of the samples (B,) were found unreadable so far: place in `indices`, and why."""
        rows = self.rows[indices].tolist()
        with self._lock:
            return {place: self._failed[row] for place, row in enumerate(rows) if row in self._failed}

    def fetch(self, indices: Tensor) -> Tensor:
        """(B,) int64 to (B, 3, size, size) uint8."""
        images = np.stack(list(self._pool.map(self._read, self.rows[indices].tolist())))  # (B, size, size, 3)
        return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()

    def _read(self, row: int) -> NDArray[np.uint8]:
        try:
            return self.source.read(row, self.size)
        except Exception as error:  # Pillow raises of every kind on broken files
            name = self.source.names[row]
            if self.strict:
                raise ValueError(f"{name} in {self.source.description} cannot be read: {why(error)}") from None
            with self._lock:
                self._failed[row] = Skipped(name, why(error))
                self.skipped = [*self.source.skipped, *(self._failed[row] for row in sorted(self._failed))]
            return np.full((self.size, self.size, 3), GRAY, np.uint8)
