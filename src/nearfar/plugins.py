"""Methods, modalities and protocols from outside the package, named as MODULE:NAME.

`--method MODULE:NAME` is imported from the path or the current folder and must be a `Method`. What its class declares
(modality, views, settings) is written to `config.yaml` when the run is configured. So the code is imported only for
training and its certificate: what evaluates, embeds, searches or exports draws the encoder alone, and a model card
from elsewhere never names code to be run.
"""

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")


_named_by: str | None = None  # the file that names what is imported, if the user did not


@contextmanager
def named_by(file: Path) -> Iterator[None]:
    """Within this, each module that is imported is announced: a run folder may be anyone's."""
    global _named_by
    before, _named_by = _named_by, str(file)
    try:
        yield
    finally:
        _named_by = before


def _file_of(module: str) -> str:
    """Where a module would be imported from."""
    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(module.partition(".")[0])
        return str(spec.origin) if spec is not None else "not found"
    return "not found"


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
    if module not in sys.modules and _named_by is not None:
        print(f"{_named_by} names code: importing {place} ({_file_of(module)})", file=sys.stderr, flush=True)
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
