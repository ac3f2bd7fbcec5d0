"""The shape of a cloud of embeddings: is it near where it must be, spread where it can be, and of full rank?"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.devices import in_float64
from nearfar.losses.arguments import check_pair, check_positive, check_rows, l2_normalize
from nearfar.losses.engine.similarity import sample_ids, similarity_logsumexp
from nearfar.losses.engine.top_k import top_k_similarity

_TILE = 1 << 20  # similarities held at once


class Histograms(NamedTuple):
    """How often each cosine similarity occurs among positives and among negatives."""

    edges: Tensor  # (bins + 1,) from -1 to 1
    positive: Tensor  # (bins,) counts
    negative: Tensor  # (bins,) counts


@torch.no_grad()
def alignment(z1: Tensor, z2: Tensor) -> Tensor:
    """Mean squared distance of the two views on the unit sphere: 0 where they coincide, 2 where they are unrelated.

    Args:
        z1, z2: (B, D), two views of the same B samples; normalised here.

    Reference: Wang & Isola 2020, section 4.1 with α = 2, https://arxiv.org/abs/2005.10242

    >>> float(alignment(torch.eye(2), torch.eye(2)[[1, 0]]))
    2.0
    """
    check_pair("z1", z1, "z2", z2)
    return (l2_normalize(z1) - l2_normalize(z2)).square().sum(1).mean()


@torch.no_grad()
def uniformity(z: Tensor, *, t: float = 2.0) -> Tensor:
    """Log of the mean of exp(-t‖zᵢ - zⱼ‖²) over all pairs: 0 where all coincide, near -2t where they fill the sphere.

    In memory linear in B, by the primitive of the losses: ‖zᵢ - zⱼ‖² is 2 - 2<zᵢ, zⱼ> on the sphere.

    Args:
        z: (B, D), at least two rows; normalised here. Rows of zeros, which have no direction, count as one point.
        t: of the Gaussian kernel.

    Reference: Wang & Isola 2020, section 4.1, https://arxiv.org/abs/2005.10242
    """
    check_rows("z", z)
    check_positive("t", t)
    if len(z) < 2:
        raise ValueError(f"z has shape {tuple(z.shape)}, expected at least two rows: there is no pair")
    u = l2_normalize(z)
    u = torch.cat([u, 1 - u.square().sum(1, keepdim=True).round()], 1)  # (B, D + 1): a row of zeros gets a 1 of its own
    ids = sample_ids(u, None)
    pairs = similarity_logsumexp(u, u, scale=2 * t, query_ids=ids, key_ids=ids)  # (B,)
    return pairs.logsumexp(0) - math.log(len(z) * (len(z) - 1)) - 2 * t


@torch.no_grad()
def effective_rank(z: Tensor, *, epsilon: float = 1e-7) -> Tensor:
    """RankMe: the exponential of the entropy of the singular values, from 1 (a line) to D (all directions alike).

    By the smaller Gram matrix in float64, whose square roots are exact far below epsilon.

    Args:
        z: (B, D) as it is, neither centred nor normalised. B should be well above D: the rank is at most B.
        epsilon: the paper's guard, added to each share.

    Returns:
        Scalar, nan where z is not finite, 0 where it is all zeros.

    Reference: Garrido et al. 2023, eq. 1, https://arxiv.org/abs/2210.02885

    >>> round(float(effective_rank(torch.eye(4))), 3)
    4.0
    """
    check_rows("z", z)
    x = z.detach().to("cpu", torch.float64)
    if not x.isfinite().all():
        return x.new_tensor(torch.nan)
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    singular = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()  # (min(B, D),)
    if not singular.any():
        return x.new_tensor(0.0)
    share = singular / singular.sum() + epsilon
    entropy = -(share * share.log()).sum()
    rank: Tensor = entropy.exp()
    return rank


@torch.no_grad()
def deviation(z: Tensor) -> Tensor:
    """(D,), the deviation of each dimension over the unit rows: 0 where collapsed, about 1/√D on average where spread.

    Args:
        z: (B, D), at least two rows; normalised here.

    Reference: Chen & He 2021 (SimSiam), figure 2, https://arxiv.org/abs/2011.10566
    """
    check_rows("z", z)
    return l2_normalize(z).std(0, correction=0)


@torch.no_grad()
def similarity_histograms(z1: Tensor, z2: Tensor, *, bins: int = 50, queries: int = 1024) -> Histograms:
    """Cosine similarities of positives (row i with row i) and of negatives (row i of z1 with the other rows of z2).

    Args:
        z1, z2: (B, D), two views of the same B samples; normalised here.
        bins: of equal width from -1 to 1.
        queries: the negatives of at most as many rows of z1, evenly spaced, are counted.
    """
    check_pair("z1", z1, "z2", z2)
    u1, u2 = l2_normalize(z1), l2_normalize(z2)

    def count(s: Tensor) -> Tensor:
        return torch.histc(s.clamp(-1, 1), bins, min=-1, max=1)

    positive, negative = count((u1 * u2).sum(1)), in_float64(u1.new_zeros(bins))
    chosen = torch.linspace(0, len(u1) - 1, min(queries, len(u1)), device=u1.device).round().long()
    for rows in chosen.split(max(1, _TILE // len(u2))):
        s = u1[rows] @ u2.T  # (rows, B)
        others = torch.ones_like(s, dtype=torch.bool)
        others[torch.arange(len(rows), device=s.device), rows] = False
        negative += in_float64(count(s[others]))
    return Histograms(torch.linspace(-1, 1, bins + 1), positive.long().cpu(), negative.long().cpu())


@torch.no_grad()
def covariance_spectrum(z: Tensor) -> Tensor:
    """(D,) eigenvalues of the covariance, falling: how many directions carry the variance, in float64.

    Reference: Jing et al. 2022, section 3, https://arxiv.org/abs/2110.09348
    """
    check_rows("z", z)
    x = z.detach().to("cpu", torch.float64)
    return _eigenvalues(x - x.mean(0)) / len(x)


def _eigenvalues(x: Tensor) -> Tensor:
    """(D,) eigenvalues of xᵀx, falling, of (N, D) rows: by x xᵀ where that is the smaller, the others are zero."""
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    found = torch.linalg.eigvalsh(gram).clamp_min(0).flip(0)
    return torch.cat([found, found.new_zeros(x.shape[1] - len(found))])


def participation_ratio(spectrum: Tensor) -> float:
    """(Σλ)² / Σλ²: as many directions of equal variance would have this spread; 0 where nothing varies.

    >>> participation_ratio(torch.tensor([2.0, 2.0, 2.0, 0.0]))
    3.0
    """
    return float(spectrum.sum().square() / spectrum.square().sum()) if spectrum.any() else 0.0


@torch.no_grad()
def lidar(z: Tensor, *, delta: float = 1e-4, epsilon: float = 1e-7) -> float:
    """Effective rank of what tells images apart beyond the changes of their views: linear discriminant analysis whose
    classes are the images.

    Args:
        z: (n, q, D), q views of each of n images, as they are; n and n · q should be well above D.
        delta: added to the diagonal of the covariance within images, as in the paper.
        epsilon: added to each share.

    Returns:
        From 1 to D; 0 where all images coincide.

    Reference: Thilak et al. 2024, section 4, https://arxiv.org/abs/2312.04000
    """
    if z.ndim != 3 or len(z) < 2 or z.shape[1] < 2:
        raise ValueError(f"z has shape {tuple(z.shape)}, expected (images, views, features), two or more of the first")
    n, q, d = z.shape
    x = z.detach().to("cpu", torch.float64)
    mean = x.mean(1)  # (n, D)
    between = mean - mean.mean(0)
    within = (x - mean[:, None]).reshape(n * q, d)
    scatter = within.T @ within / (n * q) + delta * torch.eye(d, dtype=torch.float64)
    whitened = torch.linalg.solve_triangular(torch.linalg.cholesky(scatter), between.T, upper=False)  # (D, n)
    eigenvalues = _eigenvalues(whitened.T)  # those of W^-1/2 B W^-1/2, times n
    if not eigenvalues.any():
        return 0.0
    share = eigenvalues / eigenvalues.sum() + epsilon
    return float((-(share * share.log()).sum()).exp())


class Neighborhood(NamedTuple):
    """Who is near whom among N rows."""

    occurrence: Tensor  # (N,) how many rows count it among their k nearest
    purity: Tensor | None  # (N,) share of its k nearest that have its label

    @property
    def hubness(self) -> float:
        """Skewness of the occurrence: near 0 where none is everyone's neighbour, large where a few hubs are.

        Reference: Radovanović et al. 2010, "Hubs in space", eq. 1, https://www.jmlr.org/papers/v11/radovanovic10a.html
        """
        centred = in_float64(self.occurrence) - in_float64(self.occurrence).mean()
        deviation = centred.square().mean().sqrt()
        return float((centred**3).mean() / deviation**3) if deviation > 0 else 0.0


@torch.no_grad()
def neighborhood(z: Tensor, labels: Tensor | None = None, *, k: int = 10) -> Neighborhood:
    """The k nearest others of each row by cosine, in memory linear in N.

    Args:
        z: (N, D); normalised here.
        labels: (N,) integers, for the purity.
        k: fewer where there are fewer other rows.
    """
    check_rows("z", z)
    if len(z) < 2:
        raise ValueError(f"z has shape {tuple(z.shape)}, expected at least two rows: there is no neighbour")
    u, ids = l2_normalize(z), torch.arange(len(z), device=z.device)
    _, index = top_k_similarity(u, u, k=min(k, len(z) - 1), query_ids=ids, key_ids=ids)  # (N, k)
    pure = None if labels is None else in_float64(labels[index] == labels[:, None]).mean(1)
    return Neighborhood(index.flatten().bincount(minlength=len(z)), pure)
