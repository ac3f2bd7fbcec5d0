"""Numbers with their uncertainty: a value is never shown without how far it can be trusted."""

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist, mean, stdev
from typing import NamedTuple

import torch
from torch import Tensor

_ENTRIES = 1 << 22  # weights of resamples held at once
# Student's 97.5 % quantiles for 1 to 9 degrees of freedom: the deviation of a few seeds is itself uncertain.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


class Estimate(NamedTuple):
    """A value measured on n samples, and the interval it lies in; None where none is known."""

    value: float
    low: float | None
    high: float | None
    n: int


def accuracy(predicted: Tensor, labels: Tensor, *, level: float = 0.95) -> Estimate:
    """The share of samples whose class was found, with Wilson's interval.

    Args:
        predicted: (N,) classes, or (N, C) scores of which the largest wins (the first, where several are equal).
        labels: (N,) integers.
        level: how sure the interval is.

    >>> import torch
    >>> accuracy(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0])).value
    0.75
    """
    if predicted.ndim == 2:
        predicted = predicted.argmax(1)
    if predicted.shape != labels.shape or labels.ndim != 1 or len(labels) == 0:
        raise ValueError(
            f"predicted has shape {tuple(predicted.shape)} and labels {tuple(labels.shape)}, "
            "expected (N,) or (N, C) and (N,) with at least one sample"
        )
    return proportion(predicted == labels, level=level)


def proportion(hits: Tensor, *, level: float = 0.95) -> Estimate:
    """The share of (N,) booleans that are true, with Wilson's interval."""
    right, n = int(hits.sum()), len(hits)
    low, high = wilson(right, n, level=level)
    return Estimate(right / n, low, high, n)


def wilson(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """The interval of a proportion, right near 0 and 1 and for few samples, where ±1.96 deviations is not.

    Reference: Wilson 1927, "Probable inference, the law of succession, and statistical inference".

    >>> [round(bound, 4) for bound in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes of {n}, expected from 0 to n of at least 1")
    if not 0 < level < 1:
        raise ValueError(f"level is {level:g}, expected a number between 0 and 1")
    z = NormalDist().inv_cdf((1 + level) / 2)
    part = successes / n
    centre = (part + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(part * (1 - part) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def resamples(strata: Tensor, *, count: int, seed: int) -> Iterator[Tensor]:
    """The bootstrap's resamples as weights: how often each row is drawn, (R, N), a part of the `count` at a time.

    Args:
        strata: (N,) integers; rows are drawn within each stratum, so that no class vanishes from a resample.
        count: of resamples in all.
        seed: of the draw.

    Reference: Efron & Tibshirani 1993, "An introduction to the bootstrap".

    >>> weights = torch.cat(list(resamples(torch.tensor([0, 0, 0, 1]), count=5, seed=0)))
    >>> weights.sum(1).tolist(), weights[:, 3].tolist()
    ([4.0, 4.0, 4.0, 4.0, 4.0], [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    strata, generator = strata.cpu(), torch.Generator().manual_seed(seed)
    members = [(strata == stratum).nonzero()[:, 0] for stratum in strata.unique()]
    at_once = max(1, _ENTRIES // len(strata))
    for start in range(0, count, at_once):
        weights = torch.zeros(min(at_once, count - start), len(strata))
        for rows in members:
            drawn = rows[torch.randint(len(rows), (len(weights), len(rows)), generator=generator)]
            weights.scatter_add_(1, drawn, torch.ones(drawn.shape))
        yield weights


def with_interval(value: float, draws: Tensor, n: int, *, least: float = 0.0, most: float = 1.0) -> Estimate:
    """The middle 95 % of (R,) values of resamples, moved by how far their mean is from the value: rows that are drawn
    twice make some metrics larger (AP, NMI). Cut off at the least and most that the metric can be. None where all
    resamples are alike.
    """
    draws = draws.double()
    if bool((draws == draws[0]).all()):  # no resample differs: it is not known how far chance would move the value
        return Estimate(value, None, None, n)
    low, high = torch.quantile(draws, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    bias = float(draws.mean()) - value
    return Estimate(value, max(least, min(low - bias, value)), min(most, max(high - bias, value)), n)


def mean_estimate(values: Tensor, *, count: int, seed: int) -> Estimate:
    """The mean of (N,) values of independent samples, with its bootstrap interval."""
    values = values.cpu().double()
    draws = [
        weights.double() @ values / len(values)
        for weights in resamples(torch.zeros(len(values)), count=count, seed=seed)
    ]
    return with_interval(float(values.mean()), torch.cat(draws), len(values))


def over_seeds(estimates: Sequence[Estimate], least: float = -math.inf, most: float = math.inf) -> Estimate:
    """The mean over seeds. Its interval holds both uncertainties: of the samples, which all seeds share, and of the
    seeds, by Student's distribution; added as variances, and cut off at the least and most that the metric can be.

    >>> both = over_seeds([Estimate(0.5, 0.4, 0.6, 100)] * 3)
    >>> round(both.low, 3), both.value, round(both.high, 3)
    (0.4, 0.5, 0.6)
    """
    if len(estimates) == 1:
        return estimates[0]
    value = mean(e.value for e in estimates)
    quantile = _STUDENT[len(estimates) - 2] if len(estimates) - 2 < len(_STUDENT) else 2.1
    between = quantile * stdev(e.value for e in estimates) / math.sqrt(len(estimates))
    below = mean(0.0 if e.low is None else e.value - e.low for e in estimates)
    above = mean(0.0 if e.high is None else e.high - e.value for e in estimates)
    below, above = math.hypot(below, between), math.hypot(above, between)
    if below == above == 0:
        return Estimate(value, None, None, estimates[0].n)
    return Estimate(value, max(least, value - below), min(most, value + above), estimates[0].n)
