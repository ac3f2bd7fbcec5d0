"""Losses on the statistics of features: variance, agreement between views, and no redundancy."""

from collections.abc import Sequence
from itertools import combinations, product

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.losses import reference
from nearfar.losses.arguments import check_at_least, check_pair, upcast_half
from nearfar.losses.engine.gathered import warn_if_not_gathered
from nearfar.losses.engine.precision import no_autocast


def barlow_twins(z1: Tensor, z2: Tensor, *, redundancy_weight: float = 0.0051) -> Tensor:
    """The cross-correlation matrix of the two views' features must be the identity.

    Args:
        z1, z2: (B, D), two views of the same B samples, B at least 2; each feature is standardized here over the
            batch, by its biased deviation with 1e-5 added to the variance, like the authors' batch-norm.
        redundancy_weight: the paper's λ, on the squared entries off the diagonal.

    Returns:
        A scalar: sums over the D × D matrix, not means.

    Reference: Zbontar et al. 2021, eq. 1, https://arxiv.org/abs/2103.03230
    """
    z1, z2 = _check_views(z1, z2)
    check_at_least("redundancy_weight", redundancy_weight, 0.0)
    with no_autocast(z1):
        correlation = _standardize(z1).T @ _standardize(z2) / z1.shape[0]  # (D, D)
    on_diagonal = correlation.diagonal()
    return (1 - on_diagonal).square().sum() + redundancy_weight * _off_diagonal(correlation)


def vicreg(
    z1: Tensor,
    z2: Tensor,
    *,
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
) -> Tensor:
    """Views agree, each feature has a standard deviation of at least 1, and features are uncorrelated.

    Args:
        z1, z2: (B, D), two views of the same B samples, B at least 2; not normalized.
        invariance_weight, variance_weight, covariance_weight: the paper's λ, μ, ν.

    Returns:
        A scalar. As in the authors' code, and unlike eq. 6, the squared distance is a mean over the features and
        the variance term the mean of the two views: the published weights are for this form.

    Reference: Bardes et al. 2022, eqs. 1 to 6, https://arxiv.org/abs/2105.04906
    """
    z1, z2 = _check_views(z1, z2)
    weights = _check_weights(invariance_weight, variance_weight, covariance_weight)
    return _vicreg([z1, z2], [(z1, z2)], weights)


def vicreg_views(
    views: Sequence[Tensor],
    local: Sequence[Tensor] = (),
    *,
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
) -> Tensor:
    """VICReg of any number of views; two give `vicreg`, bit for bit.

    The squared distance is the mean over all pairs of views, and of a local view with each other. The variance term is
    the mean over all views, the covariance term twice that mean.

    Args:
        views: K tensors (B, D), views of the same B samples, B at least 2; not normalized.
        local: L tensors (B, D), views of small parts of them, which are not compared with each other.
        invariance_weight, variance_weight, covariance_weight: the paper's λ, μ, ν.

    Returns:
        A scalar.

    Reference: Bardes et al. 2022, eqs. 1 to 6, https://arxiv.org/abs/2105.04906
    """
    weights = _check_weights(invariance_weight, variance_weight, covariance_weight)
    if len(views) < 2:
        raise ValueError(f"views has {len(views)} views, expected at least 2")
    whole, parts = ([_check_views(views[0], z)[1] for z in some] for some in (views, local))
    pairs = [*combinations(whole, 2), *product(parts, whole)]
    return _vicreg([*whole, *parts], pairs, weights)


def _vicreg(
    views: Sequence[Tensor], pairs: Sequence[tuple[Tensor, Tensor]], weights: tuple[float, float, float]
) -> Tensor:
    invariance = _sum([F.mse_loss(a, b) for a, b in pairs]) / len(pairs)
    variance = _sum([_variance_hinge(z) for z in views]) / len(views)
    covariance = _sum([_covariance_penalty(z) for z in views]) * (2 / len(views))
    return weights[0] * invariance + weights[1] * variance + weights[2] * covariance


def _sum(terms: Sequence[Tensor]) -> Tensor:
    """One after the other: the same rounding for any number of terms."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _check_weights(invariance: float, variance: float, covariance: float) -> tuple[float, float, float]:
    check_at_least("invariance_weight", invariance, 0.0)
    check_at_least("variance_weight", variance, 0.0)
    check_at_least("covariance_weight", covariance, 0.0)
    return invariance, variance, covariance


def _check_views(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    check_pair("z1", z1, "z2", z2)
    warn_if_not_gathered(z1)
    if z1.shape[0] < 2:
        raise ValueError(f"z1 has shape {tuple(z1.shape)}, expected at least 2 rows, to have a deviation")
    return upcast_half(z1), upcast_half(z2)


def _standardize(z: Tensor) -> Tensor:
    return F.batch_norm(z, None, None, training=True, eps=1e-5)


def _variance_hinge(z: Tensor) -> Tensor:
    """Mean over the features of max(0, 1 - standard deviation)."""
    return F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()


def _covariance_penalty(z: Tensor) -> Tensor:
    z = z - z.mean(0)
    with no_autocast(z):
        return _off_diagonal(z.T @ z / (z.shape[0] - 1)) / z.shape[1]


def _off_diagonal(matrix: Tensor) -> Tensor:
    """Sum of the squares off the diagonal."""
    return matrix.square().fill_diagonal_(0.0).sum()


@reference.definition_of(barlow_twins, reference.views_alone)
def barlow_twins_reference(z1: Tensor, z2: Tensor, redundancy_weight: float = 0.0051) -> Tensor:
    """Zbontar et al. 2021, eq. 1, with the authors' batch-norm (biased variance, 1e-5 added to it)."""

    def standardized(column: Tensor) -> Tensor:
        centered = column - column.mean()
        return centered / (centered.square().mean() + 1e-5).sqrt()

    total = z1.new_zeros(())
    for a, x in enumerate(z1.T):
        for b, y in enumerate(z2.T):
            correlation = (standardized(x) * standardized(y)).mean()
            total = total + ((1 - correlation) ** 2 if a == b else redundancy_weight * correlation**2)
    return total


@reference.definition_of(vicreg, reference.views_alone)
def vicreg_reference(
    z1: Tensor,
    z2: Tensor,
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
) -> Tensor:
    """Bardes et al. 2022, eqs. 1 to 6, with the means of the authors' code."""
    rows, features = z1.shape
    total = invariance_weight * (z1 - z2).square().sum() / (rows * features)
    for z in (z1, z2):
        for a, x in enumerate(z.T):
            for b, y in enumerate(z.T):
                covariance = ((x - x.mean()) * (y - y.mean())).sum() / (rows - 1)
                if a == b:
                    total = total + variance_weight * (1 - (covariance + 1e-4).sqrt()).relu() / features / 2
                else:
                    total = total + covariance_weight * covariance**2 / features
    return total


@reference.definition_of(vicreg_views, lambda loss, a, b, t: loss(*reference.many_views(a, b)))
def vicreg_views_reference(
    views: Sequence[Tensor],
    local: Sequence[Tensor] = (),
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
) -> Tensor:
    """Bardes et al. 2022: distances averaged over pairs with one of `views` at least, statistics over all views."""
    every = [*views, *local]
    pairs = [(a, b) for a in range(len(every)) for b in range(min(a, len(views)))]
    distances = [(every[a] - every[b]).square().mean() for a, b in pairs]
    # a view beside itself has the statistics of one view
    statistics = [vicreg_reference(z, z, 0.0, variance_weight, covariance_weight) for z in every]
    return invariance_weight * torch.stack(distances).mean() + torch.stack(statistics).mean()
