"""One's own methods: MODULE:NAME."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from nearfar.methods.method import Method


def named(place: str) -> Any:
    """What MODULE:NAME stands for; the module may lie in the current folder."""
    module, _, name = place.partition(":")
    here = os.getcwd()  # noqa: PTH109  as sys.path has it
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{place} is not there: {error}; expected MODULE:NAME, such as mymodule:MyMethod") from None


def own_method(place: str) -> Callable[..., Method]:
    """The class at MODULE:NAME, which is called as those of `METHODS` are."""
    made: Any = named(place)
    if not (isinstance(made, type) and issubclass(made, Method)):
        kind = f"the class {made.__name__}" if isinstance(made, type) else f"of type {type(made).__name__}"
        raise ValueError(f"{place} is {kind}, expected a class that inherits from nearfar.methods.Method")
    return made
