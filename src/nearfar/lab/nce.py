"""Noise-contrastive estimation: fit an unnormalized density by classifying data against noise.

The data follow `log p(x) = θ · (x, x², x⁴) - log Z`, two wells of unequal depth. NCE learns θ and log Z together by
logistic regression, `log p(x) - log(ν pₙ(x))` against data or noise, ν samples of noise for each of the data.

Reference: Gutmann & Hyvärinen 2012, https://jmlr.org/papers/v13/gutmann12a.html
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.losses import nce

TWO_WELLS = (0.3, 1.0, -0.25)  # θ
_POWERS = (1, 2, 4)
_GRID = torch.linspace(-6, 6, 6001, dtype=torch.float64)
_NEWTON = 50
_HALVINGS = 20  # of a step that overshoots


class Fit(NamedTuple):
    """The parameters that NCE learned."""

    theta: Tensor  # (3,)
    log_z: float


def features(x: Tensor) -> Tensor:
    """(n, 3): x, x², x⁴."""
    return torch.stack([x**power for power in _POWERS], -1)


def log_normalizer(theta: Tensor) -> float:
    """log Z by quadrature."""
    return float(torch.trapezoid((features(_GRID) @ theta).exp(), _GRID).log())


def density(theta: Tensor, log_z: float | None = None) -> tuple[Tensor, Tensor]:
    """The grid and `p(x)` on it, with the true normalizer or the given one."""
    return _GRID, (features(_GRID) @ theta - (log_normalizer(theta) if log_z is None else log_z)).exp()


def draw_data(theta: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """(n,) samples, by inverting the distribution function on the grid."""
    _, p = density(theta)
    below = torch.cat([p.new_zeros(1), torch.cumulative_trapezoid(p, _GRID)])
    below = below / below[-1]
    u = torch.rand(n, generator=generator, dtype=torch.float64)
    after = torch.searchsorted(below, u).clamp(1, len(below) - 1)
    share = (u - below[after - 1]) / (below[after] - below[after - 1]).clamp_min(1e-300)
    return _GRID[after - 1] + share * (_GRID[after] - _GRID[after - 1])


def fit(data: Tensor, noise: Tensor, noise_deviation: float) -> Fit:
    """θ and log Z by NCE, to convergence: the objective is concave, so Newton's method finds its one maximum.

    Args:
        data: (T,).
        noise: (νT,), Gaussian around 0.
        noise_deviation: of the noise.

    Reference: Gutmann & Hyvärinen 2012, section 2.2
    """
    for name, values in (("data", data), ("noise", noise)):
        if values.ndim != 1:
            raise ValueError(f"{name} has shape {tuple(values.shape)}, expected one row of numbers")
    found = fit_each(data[None], noise[None], noise_deviation)[0]
    return Fit(found[:3], float(found[3]))


def fit_each(data: Tensor, noise: Tensor, noise_deviation: float) -> Tensor:
    """(R, 4), θ and log Z of R data sets, each fitted separately: R calls of `fit` in one.

    Args:
        data: (R, T).
        noise: (R, νT), Gaussian around 0.
        noise_deviation: of the noise.
    """
    if not 0 < noise_deviation < math.inf:
        raise ValueError(f"noise_deviation is {noise_deviation:g}, expected a number above 0")
    for name, values in (("data", data), ("noise", noise)):
        if values.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(values.shape)}, expected at least one number")
        if not values.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinity, expected numbers")
    x = torch.cat([data, noise], 1)  # (R, T + νT)
    is_data = torch.cat([torch.ones_like(data[0]), torch.zeros_like(noise[0])])
    design = torch.cat([features(x), -torch.ones_like(x)[..., None]], 2)  # (R, T + νT, 4): of θ and log Z
    offset = -_log_gaussian(x, noise_deviation) - math.log(noise.shape[1] / data.shape[1])

    def logits(at: Tensor) -> Tensor:
        return (design @ at[:, :, None]).squeeze(2) + offset

    def objective(logit: Tensor) -> Tensor:
        return logit @ is_data - torch.nn.functional.softplus(logit).sum(1)

    # start from the noise, which is in the family
    start = x.new_tensor([0, -0.5 / noise_deviation**2, 0, math.log(noise_deviation * math.sqrt(2 * math.pi))])
    beta = start.repeat(len(x), 1)
    logit = logits(beta)
    now = objective(logit)
    for _ in range(_NEWTON):
        h = torch.sigmoid(logit)
        slope = ((is_data - h)[:, None] @ design).squeeze(1)  # (R, 4)
        curvature = design.mT @ (design * (h * (1 - h))[..., None])
        step = torch.linalg.solve(curvature, slope)
        size = torch.ones_like(now)
        for _ in range(_HALVINGS):
            logit = logits(beta + size[:, None] * step)
            then = objective(logit)
            worse = then < now - 1e-9 * now.abs()
            if not worse.any():
                break
            size = torch.where(worse, size / 2, size)
        beta, now = beta + size[:, None] * step, then
        if float((slope * step).sum(1).max()) < 1e-12:
            break
    return beta


def nce_covariance(theta: Tensor, noise_deviation: float, ratio: float) -> Tensor:
    """(4, 4), of √T times the error of (θ, log Z): `I⁻¹ - (1 + 1/ν) e eᵀ`, e the axis of log Z.

    I is the mean of `P g gᵀ` over the data, g the gradient of log p in (θ, log Z), P the chance of being noise. The
    paper's last term is this e eᵀ, since g holds the constant -1.

    Reference: Gutmann & Hyvärinen 2012, theorem 3
    """
    x, p = density(theta)
    g = torch.cat([features(x), -torch.ones_like(x)[:, None]], 1)  # (grid, 4)
    noise = ratio * _log_gaussian(x, noise_deviation).exp()
    weight = p * noise / (p + noise)
    information = torch.trapezoid(weight[:, None, None] * g[:, :, None] * g[:, None, :], x, dim=0)
    covariance: Tensor = torch.linalg.inv(information)
    covariance[-1, -1] -= 1 + 1 / ratio
    return covariance


def least_covariance(theta: Tensor) -> Tensor:
    """(4, 4), of √T times the error of (θ, log Z) by maximum likelihood, Z known for every θ: what ν → ∞ gives.

    θ has the inverse of the Fisher information, Cov(features), and log Z moves with θ along E[features].
    """
    x, p = density(theta)
    f = features(x)
    mean = torch.trapezoid(p[:, None] * f, x, dim=0)
    centred = f - mean
    fisher = torch.trapezoid(p[:, None, None] * centred[:, :, None] * centred[:, None, :], x, dim=0)
    along = torch.cat([torch.eye(3, dtype=torch.float64), mean[None]])  # (4, 3)
    least: Tensor = along @ torch.linalg.inv(fisher) @ along.T
    return least


def fit_bank_normalizer(
    query: Tensor, bank: Tensor, temperature: float, *, samples: int, ratio: int, generator: torch.Generator
) -> float:
    """log Z of `e^{s/τ} / Z` over the rows of a bank, learned by `losses.nce` from samples alone.

    Args:
        query: (D,).
        bank: (n, D) unit rows.
        samples: rows drawn from the true distribution, each with `ratio` rows of even noise.
    """
    logits = bank @ query / temperature
    drawn = torch.multinomial(logits.softmax(0), samples, replacement=True, generator=generator)
    noise = torch.randint(len(bank), (samples, ratio), generator=generator)
    log_z = torch.tensor(math.log(len(bank)), dtype=bank.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_z], max_iter=50, tolerance_grad=1e-10, line_search_fn="strong_wolfe")
    queries = query.expand(samples, -1).contiguous()

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = nce(
            queries, bank[drawn], bank[noise], temperature=temperature, bank_size=len(bank), log_normalizer=log_z
        )
        value.backward()
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call, arg-type, unused-ignore]
    return float(log_z.detach())


def bank_normalizer_deviation(query: Tensor, bank: Tensor, temperature: float, *, samples: int, ratio: int) -> float:
    """The standard deviation of its error by theorem 3: `√((1 / E[P] - 1 - 1/ν) / T)`."""
    p = (bank @ query / temperature).softmax(0)
    noise = ratio / len(bank)
    return math.sqrt((1 / float((p * noise / (p + noise)).sum()) - 1 - 1 / ratio) / samples)


def _log_gaussian(x: Tensor, deviation: float) -> Tensor:
    return -0.5 * (x / deviation) ** 2 - math.log(deviation * math.sqrt(2 * math.pi))
