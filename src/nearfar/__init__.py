"""Contrastive representation learning: pull what belongs together near, push the rest far.

The functions are the commands of the same names, and each has its own help, as in `help(nearfar.train)`:

    train        pretrain an encoder on a folder, a table, arrays, a Dataset, ...
    load         open an encoder: a run, an export, a name on the hub, or a model of another library
    evaluate     measure an encoder on labelled data
    embed        write embeddings to a file
    search       find the samples most similar to a query
    duplicates   find near-duplicates
    select       choose the samples to label next
    doctor       check a data set before a run
    report       write the report of a run, or compare runs
    explore      serve a page with map, search and neighbors
    export       write an encoder for other programs, or to the hub
    finish       write the model of a run that was stopped

`ContrastiveTransformer` is the same for pipelines of scikit-learn; `CustomViews` are views of one's own.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nearfar import _import_hook

if TYPE_CHECKING:  # for type checkers and editors; imported when first used
    from nearfar.doctor.doctor_function import doctor as doctor
    from nearfar.evaluation.evaluate import evaluate as evaluate
    from nearfar.explore.explore_function import explore as explore
    from nearfar.modalities.image.views.custom_views import CustomViews as CustomViews
    from nearfar.model.export.export import export as export
    from nearfar.model.load import load as load
    from nearfar.report.report_function import report as report
    from nearfar.search.duplicates_function import duplicates as duplicates
    from nearfar.search.embed import embed as embed
    from nearfar.search.search_function import search as search
    from nearfar.selection.select import select as select
    from nearfar.training.contrastive_transformer import ContrastiveTransformer as ContrastiveTransformer
    from nearfar.training.finish import finish as finish
    from nearfar.training.train import train as train

_import_hook.install()

__version__ = "0.1.0"

# Libraries that contact their makers read these when they are imported; what the user has set stays.
for _variable in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_UPDATE_CHECK", "DO_NOT_TRACK"):
    os.environ.setdefault(_variable, "1")

__all__ = [
    "ContrastiveTransformer",
    "CustomViews",
    "doctor",
    "duplicates",
    "embed",
    "evaluate",
    "explore",
    "export",
    "finish",
    "load",
    "report",
    "search",
    "select",
    "train",
]

_PACKAGES = ("doctor", "explore", "report", "search")  # that are called as functions, too
_MODULES = {
    "ContrastiveTransformer": "training.contrastive_transformer",
    "duplicates": "search.duplicates_function",
    "finish": "training.finish",
    "export": "model.export.export",
    "CustomViews": "modalities.image.views.custom_views",
    "embed": "search.embed",
    "evaluate": "evaluation.evaluate",
    "load": "model.load",
    "select": "selection.select",
    "train": "training.train",
}


def __getattr__(name: str) -> Any:
    """Import `nearfar.train`, `nearfar.load`, ... when they are first used: the losses need torch alone."""
    if name in _PACKAGES:
        return import_module(f"nearfar.{name}")
    if name in _MODULES:
        return getattr(import_module(f"nearfar.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What `dir(nearfar)` and completion show, although it is imported when it is first used."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "import_module", "os"})
