"""Embeddings as points of the map: the first two principal components, or UMAP where it is installed."""

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.cache import cache_folder, cached_array
from nearfar.report.projection import principal_components, umap_points

Layout = Literal["pca", "umap"]
Points = NDArray[np.float32]


def map_points(rows: Tensor, layout: Layout = "pca", *, key: str | None = None) -> Points:
    """(N, F) rows to (N, 2) points within [-1, 1], both axes at one scale.

    Args:
        rows: embeddings.
        layout: "umap" takes minutes for 100,000 rows, and is cached.
        key: name of the rows in the cache; None: no cache.
    """
    if layout == "pca" or len(rows) < 3:
        points = principal_components(rows, 2)[0].numpy()
    elif key is None:
        points = _umap(rows)
    else:
        points = cached_array(cache_folder() / "maps" / f"umap-{key}", lambda: _umap(rows))
    centered = points - (points.max(0) + points.min(0)) / 2
    return np.ascontiguousarray(centered / max(float(np.abs(centered).max(initial=0)), 1e-12), np.float32)


def _umap(rows: Tensor) -> Points:
    try:
        return umap_points(rows.numpy(), metric="cosine")
    except ImportError:
        raise ModuleNotFoundError("--map umap needs umap-learn: pip install 'nearfar[umap]', or --map pca") from None


def file_key(path: Path) -> str:
    """A digest that changes when the file does.

    >>> file_key(Path(__file__)) == file_key(Path(__file__))
    True
    """
    state = path.stat()
    text = f"{path.absolute()}\0{state.st_size}\0{state.st_mtime_ns}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=12).hexdigest()
