"""Entropy, divergence and mutual information of labels that were drawn: of their frequencies.

Frequencies vary less than what they were drawn from, so entropies come out too low on average, and what x and y seem
to share too high, by about half a cell for each row; Miller and Madow add that half.

Reference: Miller 1955, in Paninski 2003, https://doi.org/10.1162/089976603321780272
"""

import math
from typing import Any, Literal

from torch import Tensor

from nearfar.lab.information import (
    Form,
    Unit,
    cross_entropy,
    entropy,
    in_unit,
    kl_divergence,
    mutual_information,
)
from nearfar.lab.probability import frequencies, frequencies_side_by_side

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
    table = frequencies(*samples)
    return entropy(table, unit=unit) + in_unit(unit, _missing(table, len(samples[0]), correction))


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
    table, n = frequencies(x, y), len(x)
    plain = mutual_information(table, form=form, unit=unit)
    alone = _missing(table.sum(1), n, correction) + _missing(table.sum(0), n, correction)
    return plain + in_unit(unit, alone - _missing(table, n, correction))


def sampled_perplexity(*samples: Any, correction: Correction = "none") -> float:
    """`exp(H)`: as many equally likely labels would be as hard to foresee; of a model's forecasts see `perplexity`.

    Args:
        samples, correction: as for `sampled_entropy`.

    >>> round(sampled_perplexity([0, 1, 2, 3]), 12)
    4.0
    """
    return math.exp(sampled_entropy(*samples, correction=correction))


def _missing(table: Tensor, n: int, correction: Correction) -> Tensor:
    """What the entropy of n rows lacks on average, in nats."""
    if correction not in ("none", "miller_madow"):
        raise ValueError(f"correction is {correction!r}, expected 'none' or 'miller_madow'")
    cells = (table > 0).sum().double()
    return (cells - 1) / (2 * n) if correction == "miller_madow" else cells * 0
