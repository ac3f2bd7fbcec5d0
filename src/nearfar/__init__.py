"""Contrastive representation learning: pull what belongs together near, push the rest far."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; imported when first used
    from nearfar.evaluation.evaluate import evaluate as evaluate
    from nearfar.modalities.image.views.custom_views import CustomViews as CustomViews
    from nearfar.model.export.export import export as export
    from nearfar.model.load import load as load
    from nearfar.search.duplicates_function import duplicates as duplicates
    from nearfar.search.embed import embed as embed
    from nearfar.training.finish import finish as finish
    from nearfar.training.train import train as train

__version__ = "0.1.0"
__all__ = ["CustomViews", "duplicates", "embed", "evaluate", "export", "finish", "load", "train"]

_MODULES = {
    "duplicates": "search.duplicates_function",
    "finish": "training.finish",
    "export": "model.export.export",
    "CustomViews": "modalities.image.views.custom_views",
    "embed": "search.embed",
    "evaluate": "evaluation.evaluate",
    "load": "model.load",
    "train": "training.train",
}


def __getattr__(name: str) -> Any:
    """Import `nearfar.train`, `nearfar.load`, ... when they are first used: the losses need torch alone."""
    if name in _MODULES:
        return getattr(import_module(f"nearfar.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What `dir(nearfar)` and completion show, although it is imported when it is first used."""
    return sorted({*globals(), *__all__})
