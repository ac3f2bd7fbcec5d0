"""Settings declare themselves: each field of a settings dataclass has a default, a help text and its limits."""

import operator
from collections.abc import Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from typing import Any

_LIMITS = {
    "least": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "most": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}


def setting(
    default: Any,
    help: str,  # noqa: A002
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Sequence[Any] | None = None,
) -> Any:
    """A field of a settings dataclass.

    Args:
        default: a list or dict is copied for each instance.
        help: what `--help` and the reference say of it, in a line.
        least, above, most, below: limits, inclusive and exclusive; of a list, of each entry.
        choices: the values allowed.
    """
    limits = {"least": least, "above": above, "most": most, "below": below, "choices": choices}
    metadata = {"help": help, **{name: limit for name, limit in limits.items() if limit is not None}}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def check_settings(settings: Any, where: str) -> None:
    """Refuse values outside of their limits, and an empty list where the default is not empty; for `__post_init__`.

    Fields that are settings themselves are checked with them.

    Args:
        where: prefix of the keys, such as "protocols.knn".

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Knn:
    ...     k: list[int] = setting([20], "neighbors that vote", least=1)
    >>> check_settings(Knn([0]), "protocols.knn")
    Traceback (most recent call last):
    ValueError: protocols.knn.k is [0], expected at least 1
    """
    for each in fields(settings):
        value, limits = getattr(settings, each.name), each.metadata
        if is_dataclass(value):
            check_settings(value, f"{where}.{each.name}")
            continue
        values = value if isinstance(value, list) else [] if value is None else [value]
        wrong = value == [] and each.default_factory is not MISSING and each.default_factory() != []
        if wrong or not all(_allowed(one, limits) for one in values):
            raise ValueError(f"{where}.{each.name} is {value!r}, expected {_expected(limits)}")


def _allowed(value: Any, limits: Any) -> bool:
    inside = all(holds(value, limits[name]) for name, (holds, _) in _LIMITS.items() if name in limits)
    return inside and value in limits.get("choices", [value])


def _expected(limits: Any) -> str:
    if "choices" in limits:
        return " or ".join(map(repr, limits["choices"]))
    return " and ".join(f"{words} {limits[name]:,}" for name, (_, words) in _LIMITS.items() if name in limits)
