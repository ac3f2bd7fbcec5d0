"""Numbers with their uncertainty: a value is never shown without how far it can be trusted."""

import math
from statistics import NormalDist
from typing import NamedTuple

from torch import Tensor


class Estimate(NamedTuple):
    """A value measured on n samples, and the interval it lies in."""

    value: float
    low: float
    high: float
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
    right, n = int((predicted == labels).sum()), len(labels)
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
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high
