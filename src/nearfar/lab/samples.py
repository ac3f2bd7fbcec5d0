"""Entropy, divergence and mutual information of drawn labels, from their frequencies.

Entropies of frequencies are too low on average, and mutual information is too high, by about (occupied cells - 1) / 2n.
Miller and Madow correct for this.

Reference: Miller 1955, in Paninski 2003, https://doi.org/10.1162/089976603321780272
"""

import math
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nearfar.lab.information import Form, Unit, convert_unit, cross_entropy, entropy, kl_divergence
from nearfar.lab.probability import frequencies_over_union, label_indices

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
    places = label_indices(*samples)
    cells = torch.from_numpy(np.bincount(_occupied(places)) / len(places[0]))
    return entropy(cells, unit=unit) + convert_unit(unit, _missing(cells, len(places[0]), correction))


def sampled_conditional_entropy(x: Any, y: Any, *, correction: Correction = "none", unit: Unit = "nats") -> float:
    """`H(x | y) = H(x, y) - H(y)` of the frequencies of pairs (x_i, y_i).

    Args:
        x, y: (n,), integers or words.
        correction, unit: as for `sampled_entropy`.
    """
    entropy_of = partial(sampled_entropy, correction=correction, unit=unit)
    return entropy_of(x, y) - entropy_of(y)


def sampled_cross_entropy(p: Any, q: Any, *, unit: Unit = "nats") -> float:
    """`H(p, q)` of two samples that need not be equally long: infinite if p has a label that q never drew.

    Args:
        p: (n,), integers or words.
        q: (m,), of the same kind.
        unit: "nats" or "bits".
    """
    return cross_entropy(*frequencies_over_union(p, q), unit=unit)


def sampled_kl_divergence(p: Any, q: Any, *, unit: Unit = "nats") -> float:
    """`KL(p‖q)` of two samples that need not be equally long: infinite if p has a label that q never drew.

    Args:
        p, q, unit: as for `sampled_cross_entropy`.

    >>> round(sampled_kl_divergence(["a", "b"], ["a", "b", "b", "b"], unit="bits"), 4)
    0.2075
    """
    return kl_divergence(*frequencies_over_union(p, q), unit=unit)


def sampled_mutual_information(
    x: Any, y: Any, *, form: Form = "divergence", correction: Correction = "none", unit: Unit = "nats"
) -> float:
    """Mutual information of the frequencies of pairs (x_i, y_i); without correction too high on average.

    Args:
        x, y: (n,), integers or words.
        form: one of the three equal forms of `mutual_information`.
        correction, unit: as for `sampled_entropy`, of each of the three entropies.
    """
    first, second = label_indices(x, y)
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
    return convert_unit(unit, plain + alone - _missing(joint, n, correction))


def sampled_perplexity(*samples: Any, correction: Correction = "none") -> float:
    """`exp(H)`: the number of equally likely labels with this entropy; for a model's predictions see `perplexity`.

    Args:
        samples, correction: as for `sampled_entropy`.

    >>> round(sampled_perplexity([0, 1, 2, 3]), 12)
    4.0
    """
    return math.exp(sampled_entropy(*samples, correction=correction))


def _occupied(places: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """(n,), the index of each row's combination among those that occur."""
    cell, *others = places
    for place in others:
        cell = np.unique(cell.astype(np.int64) * (int(place.max()) + 1) + place, return_inverse=True)[1]
    return cell


def _missing(table: Tensor, n: int, correction: Correction) -> Tensor:
    """The expected bias of the entropy of n rows, in nats, with its sign changed."""
    if correction not in ("none", "miller_madow"):
        raise ValueError(f"correction is {correction!r}, expected 'none' or 'miller_madow'")
    cells = (table > 0).sum().double()
    return (cells - 1) / (2 * n) if correction == "miller_madow" else cells * 0
