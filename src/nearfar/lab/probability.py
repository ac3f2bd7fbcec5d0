"""Tables of probabilities: checks, marginals, conditionals and Bayes' rule."""

import operator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Given = Literal["x", "y"]
_TOLERANCE = 1e-6  # of the sum of a table


def probabilities(name: str, p: Any) -> Tensor:
    """`p` as a float64 table that sums to 1; raises if it is not one of probabilities.

    Args:
        name: for the message.
        p: a tensor, an array or nested lists, of any shape, summing to 1 within 1e-6.
    """
    table = as_float64(name, p, expected="probabilities")
    if table.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(table.shape)}, expected at least one probability")
    if table.min() < 0:
        raise ValueError(f"{name} has the entry {float(table.min()):g}, expected probabilities: none below 0")
    total = float(table.sum())
    if abs(total - 1) > _TOLERANCE:
        raise ValueError(f"{name} sums to {total:g}, expected 1; divide counts by their sum")
    return table / table.sum()


def as_float64(name: str, values: Any, *, expected: str = "numbers") -> Tensor:
    """A tensor, an array or nested lists as a float64 tensor; raises unless all are real and finite."""
    try:
        raw = values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is {str(values)[:60]!r}, expected a table of numbers") from None
    if raw.is_complex():
        raise TypeError(f"{name} has type {raw.dtype}, expected real numbers")
    table = raw.to("cpu", torch.float64)
    if not table.isfinite().all():
        raise ValueError(f"{name} holds NaN or infinity, expected {expected}")
    return table


def joint_table(joint: Any) -> Tensor:
    """p(x, y) as a float64 table: rows are x, columns y."""
    table = probabilities("joint", joint)
    if table.ndim != 2:
        raise ValueError(f"joint has shape {tuple(table.shape)}, expected (values of x, values of y)")
    return table


def marginal(joint: Any, of: Given) -> Tensor:
    """p(x) or p(y): the sum over the other (the law of total probability).

    >>> [round(p, 12) for p in marginal([[0.2, 0.5], [0.3, 0.0]], "x").tolist()]
    [0.7, 0.3]
    """
    return joint_table(joint).sum(1 - _axis(of))


def conditional(joint: Any, given: Given = "y") -> Tensor:
    """p(x | y) or p(y | x), in the shape of the joint table; 0 where the condition never occurs.

    >>> conditional([[0.2, 0.5], [0.3, 0.0]], given="y")[:, 0].tolist()  # of sun and rain, given an umbrella
    [0.4, 0.6]
    """
    table = joint_table(joint)
    condition = table.sum(1 - _axis(given), keepdim=True)
    return torch.where(condition > 0, table / condition, 0.0)


def bayes(prior: Any, likelihood: Any) -> tuple[Tensor, float]:
    """The posterior after an observation, and its probability: `p(x | y) = p(y | x) p(x) / p(y)`.

    A likelihood is a function of x at one observed y. It sums to anything over x; probabilities sum to 1 over y.

    Args:
        prior: (K,), p(x).
        likelihood: (K,), p(y | x) of the one y that was seen, between 0 and 1.

    Returns:
        (K,) posterior, and p(y) by the law of total probability.

    >>> posterior, seen = bayes([0.01, 0.99], [0.9, 0.05])  # ill or not; the test is positive
    >>> round(float(posterior[0]), 3), round(seen, 4)
    (0.154, 0.0585)
    """
    p, chance = probabilities("prior", prior), as_float64("likelihood", likelihood, expected="probabilities")
    if chance.shape != p.shape:
        raise ValueError(f"likelihood has shape {tuple(chance.shape)} and prior {tuple(p.shape)}, expected the same")
    if not ((chance >= 0) & (chance <= 1)).all():
        raise ValueError("likelihood has an entry outside [0, 1], expected p(y | x) of the observation, for each x")
    seen = (p * chance).sum()
    if seen == 0:
        raise ValueError("likelihood is 0 wherever the prior is not, expected an observation that can occur")
    return p * chance / seen, float(seen)


def frequencies(*samples: Any) -> Tensor:
    """Relative frequencies of combinations of labels: a table with one axis for each sample.

    It has all cells, also those that never occur; for many labels use `sampled_*`, which keep only occupied cells.

    Args:
        samples: each (n,), integers or words; row i of all belongs together.

    >>> frequencies(["a", "b", "a", "a"], [0, 1, 1, 0]).tolist()
    [[0.5, 0.25], [0.0, 0.25]]
    """
    places = label_indices(*samples)
    counts = np.zeros([int(p.max()) + 1 for p in places])
    np.add.at(counts, tuple(places), 1)
    return torch.from_numpy(counts / len(places[0]))


def label_indices(*samples: Any) -> list[np.ndarray[Any, Any]]:
    """For each sample of labels (n,), the index of each row's label among those of the sample, from 0.

    Args:
        samples: each (n,), integers or words; row i of all belongs together.
    """
    found = _labels(*samples)
    if not found:
        raise ValueError("no sample was given, expected at least one row of labels")
    if len({len(s) for s in found}) > 1:
        shapes = ", ".join(str(each.shape) for each in found)
        raise ValueError(f"samples have shapes {shapes}, expected rows that belong together, equally long")
    return [np.unique(s, return_inverse=True)[1] for s in found]


def frequencies_over_union(p: Any, q: Any) -> tuple[Tensor, Tensor]:
    """Relative frequencies in two unpaired samples, as two tables over the labels of both.

    Args:
        p: (n,), integers or words.
        q: (m,), of the same kind.

    >>> [table.tolist() for table in frequencies_over_union(["a", "b"], ["b", "c", "b", "b"])]
    [[0.5, 0.5, 0.0], [0.0, 0.75, 0.25]]
    """
    first, second = _labels(p, q)
    if (first.dtype.kind in "US") != (second.dtype.kind in "US"):
        raise TypeError(f"samples have types {first.dtype} and {second.dtype}, expected words in both or in neither")
    labels, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    halves = np.split(places, [len(first)])
    p_table, q_table = (torch.from_numpy(np.bincount(half, minlength=len(labels)) / len(half)) for half in halves)
    return p_table, q_table


def _labels(*samples: Any) -> list[np.ndarray[Any, Any]]:
    found = [_array(f"sample {place + 1}", s) for place, s in enumerate(samples)]
    for place, s in enumerate(found):
        if s.ndim != 1 or len(s) == 0:
            raise ValueError(f"sample {place + 1} has shape {s.shape}, expected one row of labels, not empty")
        if s.dtype.kind in "fcO":
            raise TypeError(f"sample {place + 1} has type {s.dtype}, expected labels; use bins or neighbor_*")
    return found


def _array(name: str, sample: Any) -> np.ndarray[Any, Any]:
    if isinstance(sample, Tensor):  # NumPy has no bfloat16
        sample = sample.detach().cpu()
        return np.asarray(sample.double() if sample.is_floating_point() else sample)
    try:
        array = np.asarray(sample)
    except ValueError:
        raise ValueError(f"{name} is {str(sample)[:60]!r}, expected one row of labels") from None
    if array.dtype.kind in "US" and isinstance(sample, list | tuple):
        other = next((each for each in sample if not isinstance(each, str | bytes)), None)
        if other is not None:
            raise TypeError(f"{name} has words and {other!r}, expected words alone or whole numbers alone")
    return array


def check_int(name: str, value: Any, least: int) -> int:
    """`value` as an integer of at least `least`; raises for 2.5 or a string."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or found < least:
        raise ValueError(f"{name} is {value!r}, expected a whole number, at least {least}")
    return found


def _axis(name: Given) -> int:
    if name not in ("x", "y"):
        raise ValueError(f"{name!r} is neither 'x', the rows of the table, nor 'y', its columns")
    return 0 if name == "x" else 1
