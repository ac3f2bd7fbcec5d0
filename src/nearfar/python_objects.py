"""Python objects under a name: how data, networks, views and methods that are no files enter a configuration.

A configuration holds texts alone. An object that a caller gives is registered here, and the configuration names it as
"python:NAME". The name means something in this process only: a run folder cannot hold the object, and who opens the
run in another process must give it again.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

Kind = TypeVar("Kind")
PREFIX = "python:"
_objects: dict[str, Any] = {}


class MissingObjectError(ValueError):
    """A run names an object of the Python program that started it, and this program did not give it."""


def register(value: Any, name: str) -> str:
    """The text that stands for an object: "python:NAME", with a number if another object has that name.

    The same object always gets the same text.

    >>> value = [1]
    >>> first, again, other = (register(each, "doctest") for each in (value, value, [1]))
    >>> first == again, other
    (True, 'python:doctest-2')
    """
    spec, number = f"{PREFIX}{name}", 1
    while spec in _objects and _objects[spec] is not value:
        number += 1
        spec = f"{PREFIX}{name}-{number}"
    _objects[spec] = value
    return spec


def register_as(spec: str, value: Any) -> None:
    """Let a text of an earlier process stand for this object: for a run that is resumed or loaded."""
    _objects[spec] = value


def release(spec: str) -> None:
    """Forget an object, so that its memory can be freed."""
    _objects.pop(spec, None)


@contextmanager
def newly_registered() -> Iterator[list[str]]:
    """The texts of what is registered inside, which are listed at its end."""
    before, found = set(_objects), list[str]()
    try:
        yield found
    finally:
        found += _objects.keys() - before


@contextmanager
def released_afterwards(kind: type[Any] = object) -> Iterator[None]:
    """Forget the objects of a class that are registered inside, so that their memory can be freed.

    >>> with released_afterwards(list):
    ...     spec = register([2], "for-a-while")
    >>> registered(spec) is None
    True
    """
    new: list[str] = []
    try:
        with newly_registered() as new:
            yield
    finally:
        for spec in new:
            if isinstance(_objects[spec], kind):
                release(spec)


def is_object(spec: object) -> bool:
    """Whether a text stands for an object.

    >>> is_object("python:array-2000"), is_object("photos/")
    (True, False)
    """
    return isinstance(spec, str) and spec.startswith(PREFIX)


def names_objects(settings: object) -> bool:
    """Whether some text in nested settings stands for an object.

    >>> names_objects({"data": {"path": "python:array-60"}}), names_objects({"views": ["photos", 2]})
    (True, False)
    """
    if isinstance(settings, Mapping):
        return any(names_objects(value) for value in settings.values())
    if isinstance(settings, list | tuple):
        return any(names_objects(value) for value in settings)
    return is_object(settings)


def resume_hint(folder: Path) -> str:
    """How a run goes on: the command, or the call where the run was given objects."""
    with suppress(OSError, UnicodeDecodeError):
        if re.search(rf"[\s'\"]{PREFIX}", (folder / "config.yaml").read_text(encoding="utf-8")):
            return f"nearfar.train(<the same objects>, resume={str(folder)!r})"
    return f"nearfar train --resume {shlex.quote(str(folder))}"


def registered(spec: str) -> Any | None:
    """The object that a text stands for; None if this process does not have it."""
    return _objects.get(spec)


def registered_objects(kind: type[Kind]) -> list[Kind]:
    """All objects of a class."""
    return [each for each in _objects.values() if isinstance(each, kind)]


def find_object(spec: str, argument: str) -> Any:
    """The object that a text stands for.

    Args:
        argument: the keyword by which it is given, for the message.

    Raises:
        MissingObjectError: this process was not given it.
    """
    if spec not in _objects:
        raise MissingObjectError(
            f"{spec!r} was a Python object, which the run folder does not hold; pass the same object "
            f"again from Python: {argument}=..."
        )
    return _objects[spec]
