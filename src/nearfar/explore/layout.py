"""Embeddings as points of a plane: the two principal directions, or UMAP where it is installed."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.cache import cache_folder, cached_array

Layout = Literal["pca", "umap"]
Points = NDArray[np.float32]


def plane(rows: Tensor, kind: Layout = "pca", *, key: str | None = None) -> Points:
    """(N, F) rows to (N, 2) points within [-1, 1], both axes at one scale.

    Args:
        rows: embeddings.
        kind: "pca", or "umap", which takes minutes for 100,000 rows and is kept in the cache.
        key: names the rows in the cache; None keeps nothing.
    """
    if kind == "pca":
        points = principal(rows)
    elif key is None:
        points = _umap(rows)
    else:
        points = cached_array(cache_folder() / "maps" / f"umap-{key}", lambda: _umap(rows))
    centred = points - (points.max(0) + points.min(0)) / 2
    return np.ascontiguousarray(centred / max(float(np.abs(centred).max(initial=0)), 1e-12), np.float32)


def principal(rows: Tensor) -> Points:
    """(N, 2): along the two directions of largest variance, each with its largest weight positive.

    >>> principal(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).tolist()
    [[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    """
    x = rows.float()
    mean = x.double().mean(0)
    gram = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for part in x.split(16_384):
        centred = part.double() - mean
        gram += centred.T @ centred
    directions = torch.linalg.eigh(gram).eigenvectors.flip(1)[:, :2]  # (F, 1 or 2), largest first
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    directions = directions * torch.where(largest < 0, -1.0, 1.0)
    points = torch.cat([(part.double() - mean) @ directions for part in x.split(16_384)])
    if points.shape[1] == 1:
        points = torch.cat([points, torch.zeros_like(points)], 1)
    return np.asarray(points.numpy(), np.float32)


def _umap(rows: Tensor) -> Points:
    try:
        from umap import UMAP
    except ImportError:
        raise ModuleNotFoundError(
            "the map by UMAP needs umap-learn, which is not installed: pip install 'nearfar[umap]', or --map pca"
        ) from None
    count = min(15, len(rows) - 1)
    if count < 2:
        return principal(rows)
    return np.asarray(UMAP(n_neighbors=count, metric="cosine", random_state=0).fit_transform(rows.numpy()), np.float32)


def file_key(path: Path) -> str:
    """Changes when the file does.

    >>> file_key(Path(__file__)) == file_key(Path(__file__))
    True
    """
    import hashlib

    state = path.stat()
    text = f"{path.absolute()}\0{state.st_size}\0{state.st_mtime_ns}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=12).hexdigest()
