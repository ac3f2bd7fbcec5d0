"""Embeddings as points of a map: principal components, or UMAP where umap-learn is installed."""

import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

_ROWS = 16_384  # in float64 at a time


def principal_components(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(N, P) coordinates along the directions of largest variance, and (P,) their shares of it; P is at least two.

    Computed in float64. The sign of a direction makes its largest entry positive; missing directions are zeros.

    >>> principal_components(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 2)[0].tolist()
    [[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    """
    mean = x.double().mean(0)
    gram = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for part in x.split(_ROWS):
        centered = part.double() - mean
        gram += centered.T @ centered
    values, vectors = torch.linalg.eigh(gram)  # rising
    kept = min(most, len(values), len(x))
    values, vectors = values.flip(0)[:kept].clamp_min(0), vectors.flip(1)[:, :kept]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    vectors = vectors * torch.where(largest < 0, -1.0, 1.0)
    points = torch.cat([(part.double() - mean) @ vectors for part in x.split(_ROWS)])
    shares, missing = values / gram.trace().clamp_min(1e-300), max(0, 2 - kept)
    return F.pad(points, (0, missing)).float(), F.pad(shares, (0, missing)).float()


def umap_points(x: NDArray[Any], *, metric: str = "euclidean") -> NDArray[np.float32]:
    """(N, F) rows to (N, 2) by UMAP, with a fixed seed; at least three rows."""
    from umap import UMAP

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a seed means one thread, and UMAP warns about it
        layout = UMAP(n_neighbors=min(15, len(x) - 1), min_dist=0.1, metric=metric, random_state=0, n_jobs=1)
        return np.asarray(layout.fit_transform(x), np.float32)
