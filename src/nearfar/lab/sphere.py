"""Closed forms for points that are uniform on the circle, the sphere and hyperspheres.

Nearly all follow from one function, the mean of `e^{κ cos}` over the sphere in D dimensions.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.lab.probability import check_int
from nearfar.losses.engine.similarity import count_negatives, similarity_logsumexp

_NODES = 400
_MANY = 64  # dimensions, above which the nodes are equal steps
_STEPS = 4000


def positive_inverse(name: str, value: float) -> float:
    """1 / value; raises unless it is above 0 and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value:g}, expected a number above 0")
    return 1 / value


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value:g}, expected a finite number")
    return value


def sphere_points(n: int, dimension: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    """(n, D), uniform on the unit sphere in D dimensions; D = 2 is the circle."""
    return F.normalize(torch.randn(n, dimension, generator=generator, dtype=dtype), dim=1)


@lru_cache
def _log_distribution(dimension: int) -> tuple[Tensor, Tensor]:
    """Cosines and the logs of their weights, which would underflow for large D.

    Gauss-Legendre in the angle for few dimensions. For many, all weight is within 1/√D of a right angle, where its
    nodes are too far apart; but the density is smooth around the whole circle, so equal steps are exact to rounding.
    """
    if check_int("dimension", dimension, 2) > _MANY:
        steps = max(_STEPS, int(32 * math.sqrt(dimension)))
        angle = math.pi * (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
        weight = torch.ones_like(angle)
    else:
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        angle, weight = torch.from_numpy((nodes + 1) * math.pi / 2), torch.from_numpy(weights)
    cosine = (math.pi / 2 - angle).sin()  # 0 at a right angle, to rounding
    density = weight.log() + (dimension - 2) * (math.pi / 2 - angle).cos().log()
    return cosine, density - density.logsumexp(0)


def cosine_distribution(dimension: int) -> tuple[Tensor, Tensor]:
    """Cosines and their weights, for means over the angle to a fixed point: density ∝ sin^{D-2} of the angle.

    Exact to rounding for smooth functions.
    """
    cosine, log_weight = _log_distribution(dimension)
    return cosine, log_weight.exp()


def mean_over_sphere(function: Callable[[Tensor], Tensor], dimension: int) -> float:
    """The mean of a function of the cosine between two random directions."""
    cosine, weight = cosine_distribution(dimension)
    return float((weight * function(cosine)).sum())


def log_mean_exp(kappa: float, dimension: int) -> float:
    """`log E[e^{κ cos}]`: `log I₀(κ)` on the circle, `log(sinh κ / κ)` on the sphere.

    >>> math.isclose(log_mean_exp(2.0, 3), math.log(math.sinh(2) / 2), rel_tol=1e-12)
    True
    """
    cosine, log_weight = _log_distribution(dimension)
    return float((log_weight + _finite("kappa", kappa) * cosine).logsumexp(0))


def mean_cosine(kappa: float, dimension: int) -> float:
    """The mean cosine where directions are weighted by `e^{κ cos}`: the derivative of `log_mean_exp`."""
    cosine, log_weight = _log_distribution(dimension)
    return float(((log_weight + _finite("kappa", kappa) * cosine).softmax(0) * cosine).sum())


def relative_variance(kappa: float, dimension: int) -> float:
    """The variance of `e^{κ cos}` over the square of its mean."""
    return math.expm1(log_mean_exp(2 * kappa, dimension) - 2 * log_mean_exp(kappa, dimension))


def uniform_uniformity(dimension: int, t: float = 2.0) -> float:
    """`evaluate.uniformity` of the uniform distribution: `-2t + log E[e^{2t cos}]`, its minimum.

    Reference: Wang & Isola 2020, proposition 1, https://arxiv.org/abs/2005.10242

    >>> round(uniform_uniformity(2), 4), round(uniform_uniformity(3), 4)
    (-1.575, -2.0798)
    """
    return log_mean_exp(2 * t, dimension) - 2 * t


def polygon_uniformity(n: int, t: float = 2.0) -> float:
    """The uniformity of n points at equal steps around the circle, the minimum for n points.

    Reference: Cohn & Kumar 2007, theorem 1.2, https://arxiv.org/abs/math/0607446
    """
    angle = 2 * math.pi * torch.arange(1, n, dtype=torch.float64) / n
    return float((-2 * t * (1 - angle.cos())).exp().mean().log())


def rotated(z: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """Unit rows (n, D), each rotated by a Gaussian angle along a great circle; see `rotation_alignment`."""
    angle = sigma * torch.randn(len(z), 1, generator=generator, dtype=z.dtype)
    free = torch.randn(z.shape, generator=generator, dtype=z.dtype)
    along = F.normalize(free - (free * z).sum(1, keepdim=True) * z, dim=1)  # any direction at a right angle to z
    return angle.cos() * z + angle.sin() * along


def rotation_alignment(sigma: float) -> float:
    """`E|z - z'|² = 2 - 2 E[cos] = 2 - 2 e^{-σ²/2}`, on the circle and on every sphere."""
    return -2 * math.expm1(-(sigma**2) / 2)


def sample_von_mises_fisher(z: Tensor, kappa: float, generator: torch.Generator) -> Tensor:
    """(n, 3), each drawn around its row of the sphere with density ∝ `e^{κ cos}` (von Mises-Fisher).

    In three dimensions the cosine has the density ∝ `e^{κ c}` on [-1, 1], which is inverted.

    Reference: Wood 1994, https://doi.org/10.1080/03610919408813161
    """
    if z.ndim != 2 or z.shape[1] != 3:
        raise ValueError(f"z has shape {tuple(z.shape)}, expected points of the sphere: (n, 3)")
    if not 0 < kappa < math.inf:
        raise ValueError(f"kappa is {kappa:g}, expected a number above 0")
    u = torch.rand(len(z), 1, generator=generator, dtype=z.dtype)
    cosine = (1 + (u + (1 - u) * math.exp(-2 * kappa)).log() / kappa).clamp(-1, 1)
    free = torch.randn(z.shape, generator=generator, dtype=z.dtype)
    along = F.normalize(free - (free * z).sum(1, keepdim=True) * z, dim=1)
    return cosine * z + (1 - cosine**2).sqrt() * along


def von_mises_fisher_alignment(kappa: float) -> float:
    """`E|z - z'|² = 2 - 2 (coth κ - 1/κ)` of `sample_von_mises_fisher`, on the sphere.

    >>> math.isclose(von_mises_fisher_alignment(2.0), 2 - 2 * mean_cosine(2.0, 3), rel_tol=1e-12)
    True
    """
    return 2 - 2 * (1 / math.tanh(kappa) - 1 / kappa)


def uniform_loss(negatives: int, temperature: float, dimension: int, positive: float) -> float:
    """InfoNCE of uniform embeddings: `log(M C + e^{s⁺/τ}) - s⁺/τ`, `C = E[e^{cos/τ}]`, minus a bias.

    The log of a mean is too low on average by half the relative variance of the sum.

    Args:
        negatives: M, drawn independently.
        temperature, dimension: τ and D.
        positive: the cosine s⁺ of every positive pair.

    Reference: for M → ∞ Wang & Isola 2020, theorem 1, https://arxiv.org/abs/2005.10242
    """
    kappa = positive_inverse("temperature", temperature)
    log_c = log_mean_exp(kappa, dimension)
    own = positive_share(negatives, temperature, dimension, positive)
    chance = relative_variance(kappa, dimension) / (2 * negatives * (1 + own) ** 2)
    return math.log(negatives) + log_c - kappa * positive + math.log1p(own) - chance


def positive_share(negatives: int, temperature: float, dimension: int, positive: float) -> float:
    """`e^{s⁺/τ} / (M C)`: the positive's term in the denominator, relative to that of all negatives."""
    kappa = positive_inverse("temperature", temperature)
    return math.exp(kappa * positive - log_mean_exp(kappa, dimension)) / check_int("negatives", negatives, 1)


def gradient_noise(negatives: int, temperature: float, dimension: int, positive: float) -> float:
    """Root mean square of the gradient that uniform negatives add to a query, which is pure noise.

    Its mean along the sphere is 0 by symmetry. For M negatives its square is to first order
    `τ⁻² E[e^{2 cos/τ} (1 - cos²)] / (M C²)`, and a little less because of the positive's term.
    """
    kappa = positive_inverse("temperature", temperature)
    log_c = log_mean_exp(kappa, dimension)
    spread = mean_over_sphere(lambda c: (2 * (kappa * c - log_c)).exp() * (1 - c**2), dimension)
    return kappa * math.sqrt(spread / negatives) / (1 + positive_share(negatives, temperature, dimension, positive))


def classes_on_sphere(
    n: int, classes: int, dimension: int, spread: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Labels (n,) and two views (n, D), each drawn around the axis of its class.

    Views are independent given the class, so that a random other row is a false negative with probability 1 / classes,
    as the debiased loss assumes. Classes are axes of the space: classes ≤ dimension.
    """
    if not 1 < classes <= dimension:
        raise ValueError(f"classes are {classes} in {dimension} dimensions, expected at least 2 and an axis for each")
    labels = torch.randint(classes, (n,), generator=generator)
    centre = F.one_hot(labels, dimension).double()
    noise = torch.randn(2, n, dimension, generator=generator, dtype=torch.float64) * spread
    z1, z2 = F.normalize(centre + noise, dim=-1)
    return labels, z1, z2


def mean_negative_weight(loss: Tensor, z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    """(2B,), the mean `e^{s/τ}` of a negative that a softmax loss used: `(e^L - 1) e^{s⁺/τ} / M`.

    Args:
        loss: (2B,), of `nt_xent` or `debiased` with reduction "none" and no ids.
        z1, z2: (B, D) unit rows.
    """
    positive = (z1 * z2).sum(1).repeat(2) / temperature
    return loss.expm1() * positive.exp() / (2 * len(z1) - 2)


def mean_true_negative_weight(z1: Tensor, z2: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """(2B,), the mean of `e^{s/τ}` over the views of other labels, which needs the labels."""
    z, ids = torch.cat([z1, z2]), labels.repeat(2)
    far = similarity_logsumexp(z, z, scale=1 / temperature, query_ids=ids, key_ids=ids)
    return (far - count_negatives(ids, ids).double().log()).exp()


def collapsed_loss(pairs: int) -> float:
    """NT-Xent if all embeddings are one point: log(2N - 1), for any temperature.

    >>> from nearfar.losses import nt_xent
    >>> one = torch.ones(8, 4)
    >>> math.isclose(collapsed_loss(8), nt_xent(one, one, temperature=0.07), rel_tol=1e-6)
    True
    """
    return math.log(2 * pairs - 1)
