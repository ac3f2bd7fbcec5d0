"""The local web application: a map of embeddings, search, duplicates, and runs in training.

Needs FastAPI and uvicorn, the extra `serve`, from the first call on; importing the package does not.
"""

from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names

if TYPE_CHECKING:
    from nearfar.explore.app import make_app
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
        "make_app": "app",
    },
)
