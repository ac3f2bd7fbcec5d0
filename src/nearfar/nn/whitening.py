"""Embeddings centred, standardized or whitened: an affine map learned from embeddings alone, without labels."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

TransformKind = Literal["plain", "centered", "standardized", "whitened"]
KINDS: tuple[TransformKind, ...] = get_args(TransformKind)
SHRINKAGE = 0.1  # of the mean eigenvalue, added to each: directions of little variance are mostly noise


class EmbeddingTransform(nn.Module):
    """h (B, D) to (h - mean) · weight, (B, D) of the same width.

    Attributes:
        kind: "centered" has no weight, "standardized" one number for each feature, "whitened" a symmetric matrix.
        mean: (D,).
        weight: (D,), (D, D) or None.

    >>> transform = EmbeddingTransform("standardized", torch.tensor([1.0, 0.0]), torch.tensor([2.0, 1.0]))
    >>> transform(torch.tensor([[3.0, 5.0]]))
    tensor([[4., 5.]])
    """

    mean: Tensor
    weight: Tensor | None

    def __init__(self, kind: TransformKind, mean: Tensor, weight: Tensor | None = None) -> None:
        super().__init__()
        dims = {"centered": 0, "standardized": 1, "whitened": 2}
        if kind not in dims:
            raise ValueError(f"kind is {kind!r}, expected one of {', '.join(dims)}")
        if mean.ndim != 1:
            raise ValueError(f"mean has shape {tuple(mean.shape)}, expected (D,)")
        wanted = tuple(mean.shape) * dims[kind]
        if tuple(() if weight is None else weight.shape) != wanted:
            found = None if weight is None else tuple(weight.shape)
            raise ValueError(f"weight has shape {found}, expected {wanted or None} of kind {kind!r}")
        self.kind = kind
        self.register_buffer("mean", mean)
        self.register_buffer("weight", weight)

    def forward(self, h: Tensor) -> Tensor:
        h = h - self.mean
        if self.weight is None:
            return h
        return h * self.weight if self.weight.ndim == 1 else h @ self.weight

    def first(self, features: int) -> "EmbeddingTransform":
        """The transform of the first features alone, where it is one of each feature by itself."""
        if self.weight is not None and self.weight.ndim == 2:
            raise ValueError(
                "dim needs plain embeddings: whitening mixes all features, so the first ones alone mean nothing"
            )
        weight = None if self.weight is None else self.weight[:features]
        return EmbeddingTransform(self.kind, self.mean[:features], weight)

    def extra_repr(self) -> str:
        return f"{self.kind}, features={len(self.mean)}"


@torch.no_grad()
def fit_transform(h: Tensor, kind: TransformKind, *, shrinkage: float | None = None) -> EmbeddingTransform | None:
    """The transform of a kind that fits these embeddings; None for "plain".

    Standardized: weight = (v + s · mean v)^(-1/2) with v the variances of the features. Whitened: weight = V (λ + s ·
    mean λ)^(-1/2) Vᵀ with V and λ of the covariance. The root is symmetric: it does not depend on the signs and the
    order of the eigenvectors, and is the one that changes the embeddings least (Kessy et al. 2018,
    https://arxiv.org/abs/1512.00809). Features without variance become 0: what rounding leaves of them must not be
    magnified by whoever standardizes again. With shrinkage 0, so do directions without variance.

    Args:
        h: (N, D), at least two rows; computed in float64 on the CPU.
        shrinkage: s; None: 0.1 + D / N, since few samples tell little of a covariance.

    >>> h = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0], [2.0, -3.0]])
    >>> fit_transform(h, "whitened", shrinkage=0)(h).T.cov().round(decimals=5).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    if h.ndim != 2 or len(h) < 2:
        raise ValueError(f"h has shape {tuple(h.shape)}, expected (N, D) with at least 2 rows")
    shrinkage = SHRINKAGE + h.shape[1] / len(h) if shrinkage is None else shrinkage
    if shrinkage < 0:
        raise ValueError(f"shrinkage is {shrinkage:g}, expected at least 0")
    x = h.detach().cpu().double()
    if not bool(x.isfinite().all()):
        raise ValueError(f"h has {int((~x.isfinite()).any(1).sum())} rows that are not finite, expected none")
    if kind == "plain":
        return None
    mean = x.mean(0)
    x = x - mean
    if bool((x.abs() <= 1e-6 * mean.abs()).all()):
        raise ValueError(f"all {len(h)} rows of h are the same, expected rows that differ")
    if kind == "centered":
        return EmbeddingTransform(kind, mean.float())
    varies = x.abs().amax(0) > 1e-6 * mean.abs()  # (D,)
    if kind == "standardized":
        variances = x.square().sum(0) / (len(x) - 1)  # (D,)
        return EmbeddingTransform(kind, mean.float(), (_inverse_root(variances, shrinkage) * varies).float())
    try:
        values, vectors = torch.linalg.eigh(x.T @ x / (len(x) - 1))  # (D,), (D, D)
        weight = (vectors * _inverse_root(values, shrinkage)) @ vectors.T
    except RuntimeError:  # LAPACK gave up: few samples of many features have no variance in most directions
        weight = _inverse_root_of_rows(x, shrinkage)
    weight = weight * varies * varies[:, None]
    return EmbeddingTransform(kind, mean.float(), ((weight + weight.T) / 2).float())


def _inverse_root_of_rows(x: Tensor, shrinkage: float) -> Tensor:
    """(D, D), the inverse root of the covariance of centred rows x (N, D) by the directions that they span alone.

    >>> x = torch.tensor([[1.0, 0, 0, 1], [-1, 0, 0, -1]], dtype=torch.float64)
    >>> values, vectors = torch.linalg.eigh(x.T @ x)
    >>> other = (vectors * _inverse_root(values, 0.1)) @ vectors.T
    >>> torch.allclose(_inverse_root_of_rows(x, 0.1), other)
    True
    """
    _, lengths, vectors = torch.linalg.svd(x, full_matrices=False)  # (K,), (K, D)
    rest = x.shape[1] - len(lengths)
    roots = _inverse_root(torch.cat([lengths.square() / (len(x) - 1), x.new_zeros(rest)]), shrinkage)  # (D,)
    outside = roots[-1] if rest else roots.new_zeros(())
    identity = torch.eye(x.shape[1], dtype=x.dtype)
    weight: Tensor = (vectors.T * (roots[: len(lengths)] - outside)) @ vectors + outside * identity
    return weight


def _inverse_root(variances: Tensor, shrinkage: float) -> Tensor:
    """(v + s · mean v)^(-1/2), and 0 where that has no meaning: rounding alone is no variance."""
    variances = variances.clamp_min(0)
    shrunk = variances + shrinkage * variances.mean()
    least = len(variances) * torch.finfo(torch.float64).eps * shrunk.max()
    return torch.where(shrunk > least, shrunk.clamp_min(torch.finfo(torch.float64).tiny).rsqrt(), 0.0)
