"""Decoded images in the cache."""

import zlib

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from nearfar.data.store import Store, check_space


class ImageStore(Store):
    """Images, all of one size, in `images.npy`: (N, size, size, 3) uint8."""

    unit = "px"
    images: NDArray[np.uint8]

    @property
    def _shape(self) -> tuple[int, ...]:
        return len(self.rows), self.size, self.size, 3

    def _open(self) -> None:
        self.images = open_memmap(self.folder / "images.npy", mode="r+")
        if self.images.shape != self._shape or self.images.dtype != np.uint8:
            raise ValueError("not what was written")

    def _make(self) -> None:
        check_space(self.folder, int(np.prod(self._shape)))
        path = self.folder / "images.npy"
        path.unlink(missing_ok=True)  # another run may still have the old file mapped
        self.images = open_memmap(path, mode="w+", dtype=np.uint8, shape=self._shape)

    def put(self, row: int, sample: NDArray[np.uint8]) -> int:
        self.images[row] = sample
        return zlib.crc32(sample.tobytes())

    def get(self, row: int) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = self.images[row]
        return found

    def _flush(self) -> None:
        assert isinstance(self.images, np.memmap)
        self.images.flush()

    def _bytes(self, rows: NDArray[np.int64]) -> int:
        return 3 * self.size**2
