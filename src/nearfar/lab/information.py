"""Entropy, divergence and mutual information of tables, in nats or bits; for data see `samples` and `neighbors`.

Tables are tensors, arrays or nested lists. Computed in float64; a cell of probability 0 contributes 0.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from nearfar.lab.probability import Given, as_float64, conditional, joint_table, marginal, probabilities

Unit = Literal["nats", "bits"]
Form = Literal["conditional", "joint", "divergence"]


def entropy(p: Any, *, unit: Unit = "nats") -> float:
    """`H(p) = -Σ p log p`: of a joint table the joint entropy.

    >>> entropy([0.5, 0.5], unit="bits"), entropy([1.0, 0.0])
    (1.0, 0.0)
    """
    return convert_unit(unit, torch.special.entr(probabilities("p", p)).sum())


def joint_entropy(joint: Any, *, unit: Unit = "nats") -> float:
    """`H(x, y)` of a table p(x, y)."""
    return entropy(joint_table(joint), unit=unit)


def conditional_entropy(joint: Any, *, given: Given = "y", unit: Unit = "nats") -> float:
    """`H(x | y) = -Σ p(x, y) log p(x | y)`; `given="x"` for H(y | x).

    >>> weather = [[0.2, 0.5], [0.3, 0.0]]  # sun and rain, with and without an umbrella
    >>> round(conditional_entropy(weather, unit="bits"), 3)
    0.485
    """
    return convert_unit(unit, -torch.special.xlogy(joint_table(joint), conditional(joint, given)).sum())


def cross_entropy(p: Any, q: Any, *, unit: Unit = "nats") -> float:
    """`H(p, q) = -Σ p log q = H(p) + KL(p‖q)`; infinite if q is 0 where p is not."""
    p, q = _alike(p, q)
    return convert_unit(unit, -torch.special.xlogy(p, q).sum())


def kl_divergence(p: Any, q: Any, *, unit: Unit = "nats") -> float:
    """`KL(p‖q) = Σ p log(p / q)`, never below 0; infinite if q is 0 where p is not.

    >>> round(kl_divergence([0.5, 0.5], [0.25, 0.75], unit="bits"), 4)
    0.2075
    """
    p, q = _alike(p, q)
    return max(0.0, convert_unit(unit, torch.special.xlogy(p, torch.where(p > 0, p / q, 1.0)).sum()))


def mutual_information(joint: Any, *, form: Form = "divergence", unit: Unit = "nats") -> float:
    """Mutual information, in one of three equal forms.

    Args:
        joint: p(x, y).
        form: "conditional" `H(x) - H(x|y)`, "joint" `H(x) + H(y) - H(x, y)`, "divergence" `KL(p(x, y) ‖ p(x) p(y))`.
        unit: "nats" or "bits".

    >>> mutual_information([[0.5, 0.0], [0.0, 0.5]], unit="bits")  # a fair copy
    1.0
    """
    x, y = marginal(joint, "x"), marginal(joint, "y")
    if form == "conditional":
        return entropy(x, unit=unit) - conditional_entropy(joint, unit=unit)
    if form == "joint":
        return entropy(x, unit=unit) + entropy(y, unit=unit) - joint_entropy(joint, unit=unit)
    if form == "divergence":
        return kl_divergence(joint, x[:, None] * y, unit=unit)
    raise ValueError(f"form is {form!r}, expected 'conditional', 'joint' or 'divergence'")


def perplexity(likelihood: Any) -> float:
    """`exp(mean -log p)`, at least 1: the number of equally likely answers with the same uncertainty.

    A table has `exp(entropy(p))`, one under a model `exp(cross_entropy(p, q))`.

    Args:
        likelihood: (n,), the probabilities that a model gave to the actual outcomes; not densities.

    >>> round(perplexity([0.25, 0.25, 0.25]), 12)
    4.0
    """
    p = as_float64("likelihood", likelihood, expected="probabilities")
    if p.numel() == 0 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("likelihood is empty or leaves [0, 1], expected the probability of each thing that happened")
    return float((-p.log().mean()).exp())


def binary_cross_entropy(happened: Any, p: Any, *, unit: Unit = "nats") -> float:
    """Mean of `-y log p - (1 - y) log(1 - p)`.

    Args:
        happened: (n,), 1 for an event that happened, else 0.
        p: (n,), its predicted probability.
    """
    y, chance = as_float64("happened", happened), as_float64("p", p, expected="probabilities")
    if y.shape != chance.shape or y.numel() == 0:
        raise ValueError(f"happened has shape {tuple(y.shape)} and p {tuple(chance.shape)}, expected the same and rows")
    if not ((chance >= 0) & (chance <= 1) & (y >= 0) & (y <= 1)).all():
        raise ValueError("happened or p has an entry outside [0, 1], expected probabilities")
    return convert_unit(unit, -(torch.special.xlogy(y, chance) + torch.special.xlogy(1 - y, 1 - chance)).mean())


def _alike(p: Any, q: Any) -> tuple[Tensor, Tensor]:
    first, second = probabilities("p", p), probabilities("q", q)
    if first.shape != second.shape:
        raise ValueError(f"p has shape {tuple(first.shape)} and q {tuple(second.shape)}, expected the same")
    return first, second


def convert_unit(unit: Unit, nats: Tensor) -> float:
    """`nats` as a number in the unit asked for."""
    if unit not in ("nats", "bits"):
        raise ValueError(f"unit is {unit!r}, expected 'nats' or 'bits'")
    return float(nats) / (1.0 if unit == "nats" else math.log(2))
