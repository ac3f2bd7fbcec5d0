"""Losses on the statistics of features, one feature or pair of features at a time."""

from torch import Tensor


def _mean(x: list[Tensor]) -> Tensor:
    return sum(x) / len(x)


def _columns(z: Tensor) -> list[list[Tensor]]:
    return [[row[a] for row in z] for a in range(z.shape[1])]


def barlow_twins(z1: Tensor, z2: Tensor, redundancy_weight: float) -> Tensor:
    """Zbontar et al. 2021, eq. 1, with the authors' batch-norm (biased variance, 1e-5 added to it)."""

    def standardised(column: list[Tensor]) -> list[Tensor]:
        mean = _mean(column)
        deviation = (_mean([(x - mean) ** 2 for x in column]) + 1e-5).sqrt()
        return [(x - mean) / deviation for x in column]

    first, second = ([standardised(c) for c in _columns(z)] for z in (z1, z2))
    total = z1.new_zeros(())
    for a, x in enumerate(first):
        for b, y in enumerate(second):
            correlation = _mean([p * q for p, q in zip(x, y, strict=True)])
            total = total + ((1 - correlation) ** 2 if a == b else redundancy_weight * correlation**2)
    return total


def vicreg(z1: Tensor, z2: Tensor, invariance: float, variance: float, covariance: float) -> Tensor:
    """Bardes et al. 2022, eqs. 1 to 6, with the means of the authors' code."""
    batch, features = z1.shape
    total = z1.new_zeros(())
    for i in range(batch):
        for a in range(features):
            total = total + invariance * (z1[i, a] - z2[i, a]) ** 2 / (batch * features)
    for z in (z1, z2):
        centred = []
        for column in _columns(z):
            mean = _mean(column)
            centred.append([x - mean for x in column])
        for a in range(features):
            for b in range(features):
                together = sum(x * y for x, y in zip(centred[a], centred[b], strict=True)) / (batch - 1)
                if a == b:
                    short = 1 - (together + 1e-4).sqrt()
                    total = total + variance * (short if short > 0 else 0 * short) / features / 2
                else:
                    total = total + covariance * together**2 / features
    return total
