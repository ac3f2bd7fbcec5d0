"""Lower bounds of mutual information, on correlated Gaussians, where the truth is known.

A critic is two towers whose inner product `<u(x), w(y)>` scores a pair. The optimal critic is, for every bound here,
`log p(y | x) / p(y)`. Pairs of a batch are drawn from p(x, y), row i with column j ≠ i from p(x) p(y).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from nearfar.lab.networks import minimize, mlp
from nearfar.lab.probability import check_int
from nearfar.losses import info_nce, similarity_logsumexp

Estimator = Literal["info_nce", "nwj", "dv"]
Draw = Callable[[], tuple[Tensor, Tensor]]
Bound = Callable[[Tensor, Tensor], Tensor]  # of a critic's u and w
_DECAY = 0.9  # of MINE's moving average of E[e^f]


def gaussian_information(rho: float, dimension: int) -> float:
    """`-d/2 log(1 - ρ²)`, in nats, of d pairs of unit Gaussians with correlation ρ.

    >>> round(gaussian_information(0.5, 2), 4)
    0.2877
    """
    return -check_int("dimension", dimension, 1) / 2 * math.log1p(-(_correlation(rho) ** 2))


def correlation_from_information(information: float, dimension: int) -> float:
    """The ρ at which d pairs have this mutual information in nats."""
    if not 0 <= information < math.inf:
        raise ValueError(f"information is {information:g}, expected a finite number of nats, at least 0")
    return math.sqrt(-math.expm1(-2 * information / check_int("dimension", dimension, 1)))


def expected_gap(information: float, n: int) -> float:
    """I - (log N - L) of the optimal critic on Gaussians, to first order in 1/N: `(e^{2I} - 1) / 2N`.

    With r = p(x,y) / p(x)p(y) it is E[log m], m the mean of r over the true pair and N - 1 others. The others have the
    mean 1 and the variance e^{2I} - 1, and the true pair has the mean e^{2I}.

    >>> round(expected_gap(0.5, 100), 4)
    0.0086
    """
    return math.expm1(2 * information) / (2 * n)


def correlated_gaussians(
    n: int, dimension: int, rho: float, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """x and y, (n, d) each: unit Gaussians, the k-th of y correlated with the k-th of x."""
    left = math.sqrt(1 - _correlation(rho) ** 2)
    n, dimension = check_int("n", n, 1), check_int("dimension", dimension, 1)
    x, noise = torch.randn(2, n, dimension, generator=generator, dtype=dtype)
    return x, rho * x + left * noise


def optimal_critic(x: Tensor, y: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """u and w, (n, d + 2), whose inner products are `log p(y | x) / p(y)` of correlated Gaussians."""
    left = 1 - _correlation(rho) ** 2
    _pairs(x, y, "x", "y")
    constant = -x.shape[1] / 2 * math.log(left)
    own_x = constant - rho**2 / (2 * left) * x.square().sum(1, keepdim=True)
    own_y = -(rho**2) / (2 * left) * y.square().sum(1, keepdim=True)
    one = torch.ones_like(own_x)
    return torch.cat([rho / left * x, own_x, one], 1), torch.cat([y, one, own_y], 1)


def pair_scores(u: Tensor, w: Tensor) -> Tensor:
    """(n,), the critic's scores of the true pairs."""
    _pairs(u, w)
    return (u * w).sum(1)


def log_mean_exp_negatives(u: Tensor, w: Tensor) -> Tensor:
    """log of the mean of e^f over the n (n - 1) negative pairs."""
    _pairs(u, w)
    n, ids = len(u), torch.arange(len(u))
    if n < 2:
        raise ValueError(f"u has shape {tuple(u.shape)}, expected at least two rows, to have negatives")
    return similarity_logsumexp(u, w, scale=1.0, query_ids=ids, key_ids=ids).logsumexp(0) - math.log(n * (n - 1))


def info_nce_bound(u: Tensor, w: Tensor) -> Tensor:
    """`log N - L`, N the rows of the batch: never above log N, since L is never below 0.

    Reference: van den Oord et al. 2018, appendix A.1, https://arxiv.org/abs/1807.03748; proof in `nearfar.lab.proof`
    """
    _pairs(u, w)
    return math.log(len(u)) - info_nce(u, w, temperature=1.0, similarity="dot")


def nwj_bound(u: Tensor, w: Tensor) -> Tensor:
    """`1 + E[f] - E'[e^f]`; the paper's f is this one plus 1.

    Reference: Nguyen, Wainwright & Jordan 2010, https://arxiv.org/abs/0809.0853
    """
    return 1 + pair_scores(u, w).mean() - log_mean_exp_negatives(u, w).exp()


def dv_bound(u: Tensor, w: Tensor) -> Tensor:
    """`E[f] - log E'[e^f]`: at least `nwj_bound` of the same critic and batch, since log m ≤ m - 1.

    The logarithm of a mean over a batch is too low on average, so this is a bound only for large batches.

    Reference: Donsker & Varadhan 1983; Belghazi et al. 2018 (MINE), theorem 1, https://arxiv.org/abs/1801.04062
    """
    return pair_scores(u, w).mean() - log_mean_exp_negatives(u, w)


def _correlation(rho: float) -> float:
    if not -1 < rho < 1:
        raise ValueError(f"rho is {rho:g}, expected a correlation above -1 and below 1")
    return rho


def _pairs(first: Tensor, second: Tensor, *names: str) -> None:
    if first.ndim != 2 or first.shape != second.shape or len(first) == 0:
        one, other = names or ("u", "w")
        shapes = f"{one} has shape {tuple(first.shape)} and {other} {tuple(second.shape)}"
        raise ValueError(f"{shapes}, expected pairs: (rows, features) of both, the same")


BOUNDS: dict[Estimator, Bound] = {"info_nce": info_nce_bound, "nwj": nwj_bound, "dv": dv_bound}


class Critic(nn.Module):
    """Two small networks; the score is the inner product of their outputs."""

    def __init__(self, dimension: int, generator: torch.Generator, *, hidden: int = 64, features: int = 32) -> None:
        super().__init__()
        self.u = mlp([dimension, hidden, features], generator)
        self.w = mlp([dimension, hidden, features], generator)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.u(x), self.w(y)


def train_critic(estimator: Estimator, critic: Critic, draw: Draw, *, steps: int, lr: float = 5e-3) -> None:
    """Maximize a bound on new batches, by Adam.

    DV is trained as MINE: a batch's gradient of log E'[e^f] is biased, so E'[e^f] is divided by its moving average.

    Reference: Belghazi et al. 2018, section 3.2, https://arxiv.org/abs/1801.04062
    """
    if estimator not in BOUNDS:
        raise ValueError(f"estimator is {estimator!r}, expected one of {', '.join(map(repr, BOUNDS))}")
    average: Tensor | None = None  # the log of it

    def loss() -> Tensor:
        nonlocal average
        u, w = critic(*draw())
        if estimator != "dv":
            return -BOUNDS[estimator](u, w)
        now = log_mean_exp_negatives(u, w)
        new = now.detach()
        average = new if average is None else torch.logaddexp(average + math.log(_DECAY), new + math.log(1 - _DECAY))
        return (now - average).exp() - pair_scores(u, w).mean()

    minimize(loss, list(critic.parameters()), steps=steps, lr=lr)


@torch.no_grad()
def bound_on_batches(bound: Bound, critic: Callable[..., tuple[Tensor, Tensor]], draw: Draw, batches: int) -> Tensor:
    """(batches,), the bound on new batches."""
    return torch.stack([bound(*critic(*draw())) for _ in range(batches)]).double()


def optimal_bounds(
    bound: Bound, n: int, dimension: int, rho: float, generator: torch.Generator, batches: int
) -> Tensor:
    """(batches,), the bound of the optimal critic on new batches of n correlated Gaussians, in float64."""
    draw = partial(correlated_gaussians, n, dimension, rho, generator, torch.float64)
    return bound_on_batches(bound, partial(optimal_critic, rho=rho), draw, batches)
