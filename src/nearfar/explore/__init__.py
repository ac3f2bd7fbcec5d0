"""The local web application: a map of embeddings, search, duplicates, and runs in training.

Needs FastAPI and uvicorn, the extra `serve`, from the first call on; importing the package does not.

`nearfar.explore(run)` serves it: `nearfar.explore.explore_function`.

- **A space is a run's vectors in memory**, its names and labels, a map, and the encoder that puts queries beside
  them. A run in training has none, and only its log is shown. The map is PCA, which is exact and takes a second; UMAP
  is asked for.
- **One batcher, one lane.** A thread takes the queries that wait, up to 16, embeds pictures together and texts
  together, and looks through the rows once. Files are decoded on two other threads. Both have an end to what may
  wait, and then say 503: a queue without one only turns load into delay. Sounds are embedded one by one, so that none
  is padded.
- **A body is what its Content-Type says**: JSON, a picture, a sound. No forms, so no parser of forms, and `curl`
  sends a file as it is.
- **Samples are numbers.** No path comes from a request; names come from a file of embeddings, which may be anyone's,
  and are resolved, links included, before they are opened.
- **The guard is outside the application** (`explore/guard.py`): Host, Origin and Sec-Fetch-Site, then the cookie. A
  token is spent by its first use, so that an address in a history or a log opens nothing.
- **What a person makes is kept beside the run** (`explore/curation.py`): selections by the names of their samples, so
  that they mean the same after the data have grown; duplicates as a table for `data.groups_file`, the one mechanism
  for both uses.
- **The page is a few modules of plain JavaScript**, without a build. The map is one `drawArrays` of all points: x, y
  and label as the server sends them, in a mixed order; while the map moves, as many of the first are drawn as keep a
  frame near 30 ms, so that it is smooth without a graphics card, too, and at rest all of them. Colours, filter and
  selection are made in the shader. Points are found by a grid, the lasso by counting crossings; marks are on a canvas
  above. Everything a pointer can do has a key or a button.
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
