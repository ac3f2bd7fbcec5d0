"""Images by number, from anywhere: `open_data` is the one door."""

import re
from pathlib import Path

from nearfar.data.dataset import ArrayDataset, Dataset, Skipped
from nearfar.data.glyphs import glyphs
from nearfar.data.loader import Batch, Loader

__all__ = ["ArrayDataset", "Batch", "Dataset", "Loader", "Skipped", "glyphs", "open_data"]


def open_data(spec: str | Path, *, size: int | None = None, split: str | None = None, seed: int = 0) -> Dataset:
    """The data set that `spec` names.

    Args:
        spec: "glyphs" or "glyphs:20000".
        size: side of the stored square image; the source's own where None.
        split: "train" or "test"; "train" where None.
        seed: of data made by code.
    """
    named = re.fullmatch(r"glyphs(?::(\d+))?", str(spec))
    if named is None:
        raise ValueError(f"{str(spec)!r} is no data known here, expected 'glyphs' or 'glyphs:20000'")
    n = int(named[1] or 10_000)
    return glyphs(n, seed=seed) if split in (None, "train") else glyphs(max(n // 5, 1), seed=seed, split="test")
