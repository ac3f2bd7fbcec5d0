"""The local web application: a map of embeddings, search, duplicates, and runs in training.

Needs FastAPI and uvicorn, the extra `serve`, from the first call on; importing the package does not.

`nearfar.explore(run)` serves it: `nearfar.explore.explore_function`.
"""

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names, make_callable

if TYPE_CHECKING:
    from fastapi import FastAPI

    from nearfar.explore.limits import Limits
    from nearfar.explore.space import ExploredRun, Space

__all__ = [
    "ExploredRun",
    "Limits",
    "Space",
    "make_app",
]
__getattr__ = lazy_names(
    __name__,
    {
        "ExploredRun": "space",
        "Limits": "limits",
        "Space": "space",
    },
)


def make_app(runs: "Sequence[ExploredRun]", *, limits: "Limits | None" = None) -> "FastAPI":
    """The application for these runs; put `nearfar.explore.guard.Guard` around it."""
    check_installed()
    from nearfar.explore import app

    return app.make_app(runs, limits=limits)


def check_installed() -> None:
    """Raise if a package of the extra `serve` is missing."""
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"the explorer needs {' and '.join(missing)}: pip install 'nearfar[serve]'")


make_callable(__name__)
