"""Settings declare themselves: each field of a settings dataclass has a default, a help text and its limits.

A settings class may hold others as sections, and may name its main key (`main_key: ClassVar[str] = "path"`): a plain
value in the place of such a section stands for that key, so `data: photos/` is `data: {path: photos/}`.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from nearfar.messages import nearest_by_meaning, nearest_or_all, shown

_LISTED = 12  # known keys that an error may list
RENAMED = {"sources": "data"}  # sections by their old names, for the message about an unknown key
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
        default: a list or dict is copied for each instance; a settings class is a section with its own defaults.
        help: what `--help` and the reference say of it, in a line.
        least, above, most, below: limits, inclusive and exclusive; of a list, of each entry.
        choices: the values allowed.
    """
    limits = {"least": least, "above": above, "most": most, "below": below, "choices": choices}
    metadata = {"help": help, **{name: limit for name, limit in limits.items() if limit is not None}}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def check_settings(settings: Any, where: str = "") -> None:
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
        wrong = value == [] and (each.default if each.default_factory is MISSING else each.default_factory()) != []
        if wrong or not all(_allowed(one, limits) for one in values):
            key = f"{where}.{each.name}" if where else each.name
            raise ValueError(f"{key} is {value!r}, expected {_expected(limits)}")


def _allowed(value: Any, limits: Any) -> bool:
    inside = all(holds(value, limits[name]) for name, (holds, _) in _LIMITS.items() if name in limits)
    return inside and value in limits.get("choices", [value])


def _expected(limits: Any) -> str:
    if "choices" in limits:
        return " or ".join(map(repr, limits["choices"]))
    return " and ".join(f"{words} {limits[name]:,}" for name, (_, words) in _LIMITS.items() if name in limits)


def help_texts(kind: type[Any]) -> dict[str, str]:
    """The help text of each field by its name."""
    return {each.name: each.metadata["help"] for each in fields(kind)}


# Sections


def sections(kind: type[Any]) -> dict[str, type[Any]]:
    """The settings classes among the fields, by their names."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if is_settings(hints[each.name])}


def is_settings(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def main_key(kind: type[Any]) -> str | None:
    """The key that a plain value in the place of this section stands for."""
    key: str | None = getattr(kind, "main_key", None)
    return key


def as_section(kind: type[Any], value: Any) -> Any:
    """The keys and values of a section, from keys and values, an object of its class, or its main key's value.

    What is none of these is returned unchanged, for `build` to refuse.

    >>> from nearfar.data.config import DataConfig
    >>> as_section(DataConfig, "photos/"), as_section(DataConfig, {"test": "other/"})
    ({'path': 'photos/'}, {'test': 'other/'})
    """
    if isinstance(value, kind):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if (key := main_key(kind)) is not None:
        return {key: value}
    return {} if value is None else value


def with_sections(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values, each section as keys and values."""
    inner = sections(kind)
    return {key: as_section(inner[key], value) if key in inner else value for key, value in values.items()}


def overlaid(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Two sets of keys and values as one; where both have a key, the second wins, within mappings key by key.

    >>> overlaid({"epochs": 3, "data": {"path": "a", "test": "b"}}, {"data": {"path": "c"}})
    {'epochs': 3, 'data': {'path': 'c', 'test': 'b'}}
    """
    found = dict(values)
    for key, value in others.items():
        before = found.get(key)
        found[key] = overlaid(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return found


# From plain values


def build(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A settings object from plain values; keys that it does not have and values of another type are refused.

    Args:
        where: begins the message of an error, such as the name of a file.
    """
    return _made(kind, checked_values(kind, values, where))


def _made(kind: type[Any], values: Mapping[str, Any]) -> Any:
    inner = sections(kind)
    return kind(**{key: _made(inner[key], value) if key in inner else value for key, value in values.items()})


def checked_values(kind: type[Any], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values for `kind`, checked and with every section as keys and values, but not yet against their limits."""
    hints, inner, found = get_type_hints(kind), sections(kind), {}
    known = {each.name for each in fields(kind)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"{where}: {unknown_key(key, known)}")
        if key not in inner:
            found[key] = _fitting(value, hints[key], f"{where}: {key}")
        elif isinstance(section := as_section(inner[key], value), Mapping):
            found[key] = checked_values(inner[key], section, f"{where}: {key}")
        else:
            raise ValueError(f"{where}: {key} is {shown(value)}, expected keys and values")
    return found


def unknown_key(key: Any, known: Iterable[str], helps: Mapping[str, str] | None = None) -> str:
    """
    Args:
        helps: the help texts of known keys, in which its words are looked for, too.

    >>> unknown_key("sources.test", {"data.test"}), unknown_key("epoch", {"epochs"})
    ("there is no key 'sources.test'; it is 'data.test' now", "there is no key 'epoch'; did you mean 'epochs'?")
    """
    first, dot, rest = str(key).partition(".")
    if first in RENAMED:
        return f"there is no key {shown(key)}; it is {RENAMED[first] + dot + rest!r} now"
    names = {name: (helps or {}).get(name, "") for name in known}
    close = nearest_by_meaning(str(key), names)
    listed = nearest_or_all(str(key)[:80], known) if len(names) <= _LISTED else "; nearfar train --help lists the keys"
    return f"there is no key {shown(key)}{close or listed}"


def _fitting(value: Any, hint: Any, where: str) -> Any:
    """The value as the field wants it: 32 for "32", a path for its text, and "1e-3", which YAML reads as text."""
    kinds = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    for kind in kinds:
        plain, inside = get_origin(kind) or kind, get_args(kind)
        if plain is Literal and str(value) in inside:
            return str(value)
        if plain is float and isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            if not math.isfinite(number):
                raise ValueError(f"{where} is {number}, expected a finite number")
            return number
        if plain is str and isinstance(value, Path):
            return str(value)
        if plain is dict and isinstance(value, dict) and (odd := [key for key in value if not isinstance(key, str)]):
            raise ValueError(f"{where} has the key {shown(odd[0])}, expected names, such as temperature")
        if plain is list and isinstance(value, list | tuple):
            return [_fitting(each, inside[0], where) for each in value]
        if isinstance(plain, type) and isinstance(value, plain) and not (plain is int and isinstance(value, bool)):
            return value
    words = " or ".join(_in_words(kind) for kind in kinds)
    raise ValueError(f"{where} is {shown(value)}, expected {words}")


def _in_words(kind: Any) -> str:
    known = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", NoneType: "nothing"}
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return known.get(kind) or ("a list" if get_origin(kind) is list else "keys and values")
