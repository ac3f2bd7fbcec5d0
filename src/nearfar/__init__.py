"""Contrastive representation learning: pull what belongs together near, push the rest far."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`nearfar.train(...)` and `nearfar.load(run)`, imported when they are asked for: the losses need torch alone."""
    if name == "train":
        return import_module("nearfar.train")  # the room itself can be called
    if name == "load":
        return import_module("nearfar.train").load
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")
