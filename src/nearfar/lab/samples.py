"""Entropy, divergence and mutual information of labels that were drawn: of their frequencies.

Frequencies vary less than what they were drawn from, so entropies come out too low on average, and what x and y seem
to share too high, by about half a cell for each row; Miller and Madow add that half.

Reference: Miller 1955, in Paninski 2003, https://doi.org/10.1162/089976603321780272
"""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nearfar.lab.information import (
    Form,
    Unit,
    cross_entropy,
    entropy,
    in_unit,
    kl_divergence,
)
from nearfar.lab.probability import frequencies_side_by_side, label_places

Correction = Literal["none", "miller_madow"]


def sampled_entropy(*samples: Any, correction: Correction = "none", unit: Unit = "nats") -> float:
    """`H(x)` of the frequencies of labels; of several samples the joint entropy.

    Args:
        samples: each (n,), integers or words; row i of all belongs together.
        correction: "none", which is too low on average, or "miller_madow": plus (occupied cells - 1) / 2n.
        unit: "nats" or "bits".

    >>> sampled_entropy(["sun", "rain", "sun", "rain"], unit="bits")
    1.0
    """
    places = label_places(*samples)
    cells = torch.from_numpy(np.bincount(_occupied(places)) / len(places[0]))
    return entropy(cells, unit=unit) + in_unit(unit, _missing(cells, len(places[0]), correction))


def sampled_conditional_entropy(x: Any, y: Any, *, correction: Correction = "none", unit: Unit = "nats") -> float:
    """`H(x | y) = H(x, y) - H(y)` of the frequencies of pairs (x_i, y_i).

    Args:
        x, y: (n,), integers or words.
        correction, unit: as for `sampled_entropy`.
    """
    return sampled_entropy(x, y, correction=correction, unit=unit) - sampled_entropy(
        y, correction=correction, unit=unit
    )


def sampled_cross_entropy(p: Any, q: Any, *, unit: Unit = "nats") -> float:
    """`H(p, q)` of two samples that need not be equally long: infinite where q never drew what p did.

    Args:
        p: (n,), integers or words.
        q: (m,), of the same kind.
        unit: "nats" or "bits".
    """
    return cross_entropy(*frequencies_side_by_side(p, q), unit=unit)


def sampled_kl_divergence(p: Any, q: Any, *, unit: Unit = "nats") -> float:
    """`KL(p‖q)` of two samples that need not be equally long: infinite where q never drew what p did.

    Args:
        p, q, unit: as for `sampled_cross_entropy`.

    >>> round(sampled_kl_divergence(["a", "b"], ["a", "b", "b", "b"], unit="bits"), 4)
    0.2075
    """
    return kl_divergence(*frequencies_side_by_side(p, q), unit=unit)


def sampled_mutual_information(
    x: Any, y: Any, *, form: Form = "divergence", correction: Correction = "none", unit: Unit = "nats"
) -> float:
    """What x tells of y, of the frequencies of pairs (x_i, y_i); without correction too high on average.

    Args:
        x, y: (n,), integers or words.
        form: one of the three of `mutual_information`, which are equal here, too.
        correction, unit: as for `sampled_entropy`, of each of the three entropies.
    """
    first, second = label_places(x, y)
    n, cell = len(first), _occupied([first, second])
    _, row = np.unique(cell, return_index=True)  # one of the rows of each occupied cell
    p_x, p_y, joint = (torch.from_numpy(np.bincount(places) / n) for places in (first, second, cell))
    of_x, of_y = p_x[first[row]], p_y[second[row]]  # (cells,)
    if form == "conditional":
        plain = torch.special.entr(p_x).sum() + torch.special.xlogy(joint, joint / of_y).sum()
    elif form == "joint":
        plain = torch.special.entr(torch.cat([p_x, p_y])).sum() - torch.special.entr(joint).sum()
    elif form == "divergence":
        plain = torch.special.xlogy(joint, joint / (of_x * of_y)).sum().clamp_min(0)
    else:
        raise ValueError(f"form is {form!r}, expected 'conditional', 'joint' or 'divergence'")
    alone = _missing(p_x, n, correction) + _missing(p_y, n, correction)
    return in_unit(unit, plain + alone - _missing(joint, n, correction))


def sampled_perplexity(*samples: Any, correction: Correction = "none") -> float:
    """`exp(H)`: as many equally likely labels would be as hard to foresee; of a model's forecasts see `perplexity`.

    Args:
        samples, correction: as for `sampled_entropy`.

    >>> round(sampled_perplexity([0, 1, 2, 3]), 12)
    4.0
    """
    return math.exp(sampled_entropy(*samples, correction=correction))


def _occupied(places: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """(n,), which combination is in each row, of those that occur: at most n, however many there could be."""
    cell, *others = places
    for place in others:
        cell = np.unique(cell.astype(np.int64) * (int(place.max()) + 1) + place, return_inverse=True)[1]
    return cell


def _missing(table: Tensor, n: int, correction: Correction) -> Tensor:
    """What the entropy of n rows lacks on average, in nats."""
    if correction not in ("none", "miller_madow"):
        raise ValueError(f"correction is {correction!r}, expected 'none' or 'miller_madow'")
    cells = (table > 0).sum().double()
    return (cells - 1) / (2 * n) if correction == "miller_madow" else cells * 0
