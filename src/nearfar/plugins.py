"""Methods, modalities and protocols from outside the package, named as MODULE:NAME."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")


class PluginError(ValueError):
    """Code from outside is missing, failed, or is not what was expected; the message is one complete line."""


def import_string(place: str, base: type[Result], what: str) -> type[Result]:
    """The class at MODULE:NAME, which must inherit from `base`.

    Args:
        place: MODULE:NAME; the module may be a file of the current folder.
        base: such as `nearfar.methods.Method`.
        what: the user's word for it, such as "method".
    """
    found = import_object(place, what)
    if not (isinstance(found, type) and issubclass(found, base)):
        module = ".".join(base.__module__.split(".")[:2])
        raise PluginError(f"{place} is {describe(found)}, expected a class that inherits from {module}.{base.__name__}")
    return found


def import_object(place: str, what: str) -> Any:
    """What MODULE:NAME stands for; the module may be a file of the current folder."""
    module, _, name = place.partition(":")
    expected = f"expected MODULE:NAME, such as mymodule:My{what.title()}"
    if not module or not name:
        raise PluginError(f"{place!r} names no {what}, {expected}")
    here = os.getcwd()  # noqa: PTH109  as sys.path has it
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = call_plugin(f"{module} cannot be imported", lambda: importlib.import_module(module))
    except PluginError as error:
        cause = error.__cause__
        missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if missing is None or not (module + ".").startswith(missing + "."):
            raise  # the module itself failed, or something that it imports is missing
        raise PluginError(f"{place} is not there: {cause}; {expected}, of a file in this folder") from None
    if not hasattr(found, name):
        raise PluginError(f"{place} is not there: {module} has no {name}; {expected}")
    return getattr(found, name)


def call_plugin(fault: str, function: Callable[[], Result]) -> Result:
    """What the function returns; an error of its code becomes one line with the type, the message and the place."""
    try:
        return function()
    except PluginError:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = " ".join(str(error).split())
        place = f"{Path(where.filename).name}:{where.lineno}"
        raise PluginError(f"{fault}: {type(error).__name__}: {message} ({place}); --debug shows more") from error


def describe(found: object) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"of type {type(found).__name__}"
