"""Names of a package that are imported when they are first used: `import nearfar.X` stays cheap.

Some packages are functions, too: `nearfar.search(...)` searches, and `from nearfar.search import neighbors` imports.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Signature, signature
from types import ModuleType
from typing import Any


def lazy_names(package: str, origins: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`.

    Args:
        package: its `__name__`.
        origins: the module below it that each name comes from.
    """

    def get_name(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{origins[name]}"), name)

    return get_name


class CallablePackage(ModuleType):
    """A package that is called as the function of its own name in the module NAME_function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _function_of(self)(*arguments, **options)

    @property
    def __signature__(self) -> Signature:
        return signature(_function_of(self))


def make_callable(package: str) -> None:
    """Let a package be called; its function is imported by the first call."""
    sys.modules[package].__class__ = CallablePackage


def _function_of(package: ModuleType) -> Callable[..., Any]:
    name = package.__name__.rpartition(".")[2]
    function: Callable[..., Any] = getattr(import_module(f"{package.__name__}.{name}_function"), name)
    return function
