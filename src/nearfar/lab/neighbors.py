"""Entropy, divergence and mutual information of continuous samples, by the distance to the k-th nearest neighbor.

Distances are the largest difference of a coordinate. If a ball around x_i with k others in it has radius r, the density
is about k/n over (2r)^d; on average over the sample, log k and log n become digammas. Computed in float64. Columns
should have similar scales, and rows must not be repeated: the density of equal rows is infinite.

Reference: Kozachenko & Leonenko 1987 and Kraskov, Stögbauer & Grassberger 2004, https://arxiv.org/abs/cond-mat/0305641
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nearfar.lab.information import Unit, convert_unit
from nearfar.lab.probability import as_float64, check_int

_ENTRIES = 2**22  # of distances at a time


def neighbor_entropy(x: Any, *, k: int = 3, unit: Unit = "nats") -> float:
    """The differential entropy `-∫ p log p`, which is below 0 for a narrow distribution.

    Args:
        x: (n,) or (n, d), drawn independently.
        k: which neighbor; a larger k has less variance and more bias.
        unit: "nats" or "bits".

    >>> x = torch.rand(2000, generator=torch.Generator().manual_seed(0))  # uniform between 0 and 1: entropy 0
    >>> abs(neighbor_entropy(x)) < 0.05
    True
    """
    rows = _rows("x", x, k)
    radius = _by_rows(rows, lambda part: _kth(torch.cdist(part, rows, p=torch.inf), k + 1))  # itself is the first
    return convert_unit(unit, _digamma(len(rows)) - _digamma(k) + _log_volume("x", radius, rows.shape[1]))


def neighbor_conditional_entropy(x: Any, y: Any, *, k: int = 3, unit: Unit = "nats") -> float:
    """`H(x | y) = H(x) - I(x; y)`.

    Args:
        x, y: (n,) or (n, d); row i of both belongs together.
        k, unit: as for `neighbor_entropy`.
    """
    return neighbor_entropy(x, k=k, unit=unit) - neighbor_mutual_information(x, y, k=k, unit=unit)


def neighbor_cross_entropy(p: Any, q: Any, *, k: int = 3, unit: Unit = "nats") -> float:
    """`-∫ p log q`, of two samples that need not be equally long.

    Args:
        p: (n,) or (n, d).
        q: (m,) or (m, d).
        k, unit: as for `neighbor_entropy`.
    """
    rows, others = _rows("p", p, k), _rows("q", q, k)
    if rows.shape[1] != others.shape[1]:
        raise ValueError(f"p has {rows.shape[1]} columns and q {others.shape[1]}, expected the same")
    radius = _by_rows(rows, lambda part: _kth(torch.cdist(part, others, p=torch.inf), k), len(others))
    return convert_unit(unit, _digamma(len(others) + 1) - _digamma(k) + _log_volume("q", radius, rows.shape[1]))


def neighbor_kl_divergence(p: Any, q: Any, *, k: int = 3, unit: Unit = "nats") -> float:
    """`KL(p‖q) = H(p, q) - H(p)`; the estimate may be below 0.

    Args:
        p, q, k, unit: as for `neighbor_cross_entropy`.

    Reference: Wang, Kulkarni & Verdú 2009, https://doi.org/10.1109/TIT.2009.2016060
    """
    return neighbor_cross_entropy(p, q, k=k, unit=unit) - neighbor_entropy(p, k=k, unit=unit)


def neighbor_mutual_information(x: Any, y: Any, *, k: int = 3, unit: Unit = "nats") -> float:
    """Mutual information by the first estimator of Kraskov et al.; the estimate may be below 0.

    The ball around (x_i, y_i) with k others in it is as wide in x as in y, so that most of the bias of the three
    entropies cancels. It is at most ψ(n) + ψ(k) - 2ψ(1), and needs many more rows in many dimensions.

    Args:
        x, y: (n,) or (n, d); row i of both belongs together.
        k, unit: as for `neighbor_entropy`.
    """
    first, second = _rows("x", x, k), _rows("y", y, k)
    n = len(first)
    if n != len(second):
        raise ValueError(f"x has {n:,} rows and y {len(second):,}, expected pairs: equally many")

    def crowds(pairs: Tensor) -> Tensor:
        parts = pairs.split([first.shape[1], second.shape[1]], dim=1)
        apart = [torch.cdist(part, rows, p=torch.inf) for part, rows in zip(parts, (first, second), strict=True)]
        radius = _not_zero("(x, y)", _kth(torch.maximum(*apart), k + 1))
        near_x, near_y = ((distance < radius[:, None]).sum(1).double() for distance in apart)  # itself included
        return torch.digamma(near_x) + torch.digamma(near_y)

    crowd = _by_rows(torch.cat([first, second], 1), crowds)
    return convert_unit(unit, _digamma(n) + _digamma(k) - crowd.mean())


def _rows(name: str, values: Any, k: int) -> Tensor:
    raw = as_float64(name, values)
    rows = raw[:, None] if raw.ndim == 1 else raw
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ValueError(f"{name} has shape {tuple(raw.shape)}, expected (rows,) or (rows, dimensions)")
    if check_int("k", k, 1) >= len(rows):
        raise ValueError(f"k is {k} and {name} has {len(rows):,} rows, expected k from 1 to one less than the rows")
    return rows


def _by_rows(rows: Tensor, found: Callable[[Tensor], Tensor], others: int | None = None) -> Tensor:
    """(n,), `found` applied to some rows at a time, so that the distance matrix stays small."""
    return torch.cat([found(part) for part in rows.split(max(1, _ENTRIES // (others or len(rows))))])


def _kth(distance: Tensor, k: int) -> Tensor:
    return distance.kthvalue(k, dim=1).values


def _log_volume(name: str, radius: Tensor, dimensions: int) -> Tensor:
    """Mean log of the volumes (2r)^d."""
    return dimensions * (2 * _not_zero(name, radius)).log().mean()


def _not_zero(name: str, radius: Tensor) -> Tensor:
    if (radius == 0).any():
        raise ValueError(f"{name} has a row more than k times, expected continuous values; for labels use sampled_*")
    return radius


def _digamma(n: int) -> Tensor:
    return torch.digamma(torch.tensor(float(n), dtype=torch.float64))
