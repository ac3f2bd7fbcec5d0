"""Names of a package that are imported when they are first used: `import nearfar.X` stays cheap."""

from collections.abc import Callable, Mapping
from importlib import import_module
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
