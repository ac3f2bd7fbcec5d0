"""Images decoded once, into a memory map in the cache."""

from pathlib import Path

import torch
from numpy.lib.format import open_memmap

from nearfar.data.dataset import ArrayDataset
from nearfar.data.pack import pack_samples
from nearfar.modalities.image.data.decode import VERSION, why
from nearfar.modalities.image.data.source import ImageSource
from nearfar.modalities.image.data.store import ImageStore


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
    return ArrayDataset(images, rows=done.kept, **source.facts(torch.from_numpy(done.kept), done.skipped))
