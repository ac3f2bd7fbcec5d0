"""Two encoders on the same test samples: is one better, and by how much?

Each sample is compared with itself, so what makes it hard for both cancels. Intervals of the two numbers alone may
overlap where the difference is beyond chance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.evaluation.metrics import resamples

RESAMPLES = 2000  # of the paired bootstrap: a p of 0.001 can be told
LEVEL = 0.95
_BISECTIONS = 60
Statistic = Callable[[Tensor, Tensor], Tensor]  # (N,) values and (R, N) weights of the samples to (R,) metrics


@dataclass(frozen=True)
class SampleValues:
    """What a metric is made of, sample by sample, in the order of the test samples.

    Attributes:
        values: (N,); booleans are right or wrong, and are compared by McNemar's test.
        statistic: from values and weights to the metric; None: the mean.
        groups: (N,) from 0; samples of one group are drawn together, such as captions of one image.
    """

    values: Tensor
    statistic: Statistic | None = None
    groups: Tensor | None = None


class Difference(NamedTuple):
    """A metric of one encoder minus that of another, on the same n samples."""

    value: float
    low: float | None  # None: no sample tells them apart
    high: float | None
    p: float  # of no difference, two-sided
    n: int


def compare(first: SampleValues, second: SampleValues, *, seed: int = 0) -> Difference | None:
    """First minus second: McNemar's exact test where samples are right or wrong, else the paired bootstrap.

    None if they were not measured on the same number of samples.
    """
    if first.values.shape != second.values.shape or not len(first.values):
        return None
    if first.values.dtype == torch.bool and second.values.dtype == torch.bool and first.groups is None:
        return mcnemar(first.values, second.values)
    return paired_bootstrap(first, second, seed=seed)


def mcnemar(first: Tensor, second: Tensor) -> Difference:
    """McNemar's exact test of (N,) and (N,) booleans, and the interval of the difference of their shares.

    Only the samples that one gets right and the other wrong count. If the two are equally good, each of these is a
    toss of a coin. The interval is Clopper and Pearson's for that coin, times the share of such samples, so that it
    leaves out 0 just where p is below 0.05; the number of such samples is taken as given.

    Reference: McNemar 1947, https://doi.org/10.1007/BF02295996; Clopper & Pearson 1934,
        https://doi.org/10.1093/biomet/26.4.404

    >>> found = mcnemar(torch.ones(105, dtype=torch.bool), torch.arange(105) >= 7)
    >>> round(found.value, 3), round(found.p, 3), found.low > 0
    (0.067, 0.016, True)
    """
    won, lost, n = int((first & ~second).sum()), int((~first & second).sum()), len(first)
    apart = won + lost
    if apart == 0:
        return Difference(0.0, None, None, 1.0, n)
    low, high = clopper_pearson(won, apart)
    scale = apart / n
    return Difference((won - lost) / n, (2 * low - 1) * scale, (2 * high - 1) * scale, mcnemar_p(won, lost), n)


def mcnemar_p(won: int, lost: int) -> float:
    """Two-sided p of so many heads and tails of a fair coin: twice the smaller tail, at most 1.

    >>> round(mcnemar_p(7, 0), 6) == 2 / 2**7
    True
    """
    return min(1.0, 2 * _at_least(max(won, lost), won + lost, 0.5))


def clopper_pearson(successes: int, n: int, *, level: float = LEVEL) -> tuple[float, float]:
    """The exact interval of a proportion.

    >>> [round(bound, 4) for bound in clopper_pearson(8, 10)]
    [0.4439, 0.9748]
    """
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else _bisect(lambda p: _at_least(successes, n, p) < tail)
    high = 1.0 if successes == n else _bisect(lambda p: 1 - _at_least(successes + 1, n, p) > tail)
    return low, high


def _at_least(successes: int, n: int, p: float) -> float:
    """The chance of at least so many successes of n, summed term by term in float64."""
    if successes <= 0:
        return 1.0
    k = torch.arange(successes, n + 1, dtype=torch.float64)
    whole = torch.tensor(float(n), dtype=torch.float64)
    ways = torch.lgamma(whole + 1) - torch.lgamma(k + 1) - torch.lgamma(whole - k + 1)
    p = min(max(p, 1e-300), 1 - 1e-16)
    return float((ways + k * math.log(p) + (n - k) * math.log1p(-p)).exp().sum().clamp(max=1))


def _bisect(below: Callable[[float], bool]) -> float:
    """Where a condition that holds near 0 ends to hold."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def paired_bootstrap(
    first: SampleValues, second: SampleValues, *, count: int = RESAMPLES, seed: int = 0
) -> Difference | None:
    """The difference of two metrics where both are measured on the same resamples of the samples.

    The interval is the middle 95 % of the differences. p is twice the share of the resamples on the other side of 0,
    or at 0, one more counted as such.

    Reference: Efron & Tibshirani 1993, "An introduction to the bootstrap", chapter 16.
    """
    n = len(first.values)
    groups = torch.arange(n) if first.groups is None else first.groups.cpu().long()
    draws = []
    for weights in resamples(torch.zeros(int(groups.max()) + 1), count=count, seed=seed):
        w = weights.double()[:, groups]
        draws.append(_metric(first, w) - _metric(second, w))
    drawn = torch.cat(draws)
    drawn = drawn[drawn.isfinite()]
    once = torch.ones(1, n, dtype=torch.float64)
    value = float(_metric(first, once) - _metric(second, once))
    if not math.isfinite(value):
        return None
    if len(drawn) == 0 or bool((drawn == drawn[0]).all()):
        return Difference(value, None, None, 1.0, n)
    low, high = torch.quantile(drawn, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    other_side = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return Difference(value, low, high, min(1.0, 2 * (other_side + 1) / (len(drawn) + 1)), n)


def _metric(samples: SampleValues, weights: Tensor) -> Tensor:
    """(R,) of (R, N) weights."""
    values = samples.values.cpu().double()
    if samples.statistic is not None:
        return samples.statistic(values, weights)
    return weights @ values / weights.sum(1)
