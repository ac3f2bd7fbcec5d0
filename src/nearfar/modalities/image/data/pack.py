"""Images decoded once, into a memory map in the cache."""

import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from nearfar.data.dataset import ArrayDataset
from nearfar.data.pack import pack_samples
from nearfar.data.row_sums import RowSums
from nearfar.data.store import Store, check_space, reserve
from nearfar.modalities.image.data.decode import VERSION, why
from nearfar.modalities.image.data.source import ImageSource


class ImageStore(Store):
    """Images, all of one size, in `images.npy`: (N, size, size, 3) uint8."""

    unit = "px"
    images: NDArray[np.uint8]

    @property
    def _shape(self) -> tuple[int, ...]:
        return len(self.rows), self.size, self.size, 3

    def _open(self) -> None:
        reserve(self.folder / "images.npy", (self.folder / "images.npy").stat().st_size)
        self.images = open_memmap(self.folder / "images.npy", mode="r+")
        if self.images.shape != self._shape or self.images.dtype != np.uint8:
            raise ValueError("not what was written")

    def _make(self) -> None:
        check_space(self.folder, int(np.prod(self._shape)))
        path = self.folder / "images.npy"
        path.unlink(missing_ok=True)  # another run may still have the old file mapped
        self.images = open_memmap(path, mode="w+", dtype=np.uint8, shape=self._shape)
        try:
            reserve(path, path.stat().st_size)
        except OSError:
            path.unlink()
            raise

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


def pack_images(
    source: ImageSource,
    *,
    size: int,
    cache: Path | None = None,
    strict: bool = False,
    workers: int | None = None,
    progress: bool = True,
) -> ArrayDataset:
    """Decode what is not yet in the cache, and open it; arguments as in `pack_samples`."""
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1 pixel")
    done = pack_samples(
        source,
        ImageStore,
        size=size,
        what="images",
        version=VERSION,
        why=why,
        cache=cache,
        strict=strict,
        workers=workers,
        progress=progress,
    )
    images = open_memmap(done.folder / "images.npy", mode="r")
    sums = RowSums(done.folder, done.rows["sum"])
    return ArrayDataset(images, rows=done.kept, sums=sums, **source.facts(torch.from_numpy(done.kept), done.skipped))
