"""Contrastive representation learning: pull what belongs together near, push the rest far."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker is to know of `__getattr__`
    from nearfar.embeddings import embed as embed
    from nearfar.export import load as load

__version__ = "0.1.0"

_ROOMS = {"load": "export", "embed": "embeddings"}  # where a function of the top is written


def __getattr__(name: str) -> Any:
    """`nearfar.train(...)`, `nearfar.load(run)` and `nearfar.embed(...)`, imported when they are asked for.

    The losses need torch alone.
    """
    if name == "train":
        return import_module("nearfar.train")  # the room itself can be called
    if name in _ROOMS:
        return getattr(import_module(f"nearfar.{_ROOMS[name]}"), name)
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")
