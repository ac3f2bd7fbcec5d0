"""What `nearfar check` trains: every method in its tiny form, or one from outside by MODULE:NAME."""

import inspect
from typing import Any

import torch
from torch import nn

from nearfar.distributed.variants import Subject
from nearfar.methods import METHODS
from nearfar.methods.method import Method
from nearfar.methods.toy import SAMPLES, ToyImageEncoder, toy_method, with_more_views
from nearfar.plugins import PluginError, call_plugin, describe, import_object

_PAPER_ROWS = 24  # BatchNorms of heads without biases turn few rows into large rounding errors of bfloat16


def toy_subjects() -> list[Subject]:
    """Every method in its tiny form; also on three views and two local ones, if it can use more, in the further forms
    that it declares, and with the options of its paper, if these are not the defaults."""
    subjects = []
    for name, kind in METHODS.items():
        subjects.append(Subject(name, *kind.toy()))
        if kind.max_views is None:
            local = 2 if kind.max_local is None else kind.max_local
            views = f"3+{local} views" if local else "3 views"
            subjects.append(Subject(f"{name}, {views}", *with_more_views(kind.toy(), local=local)))
        subjects += [Subject(f"{name}, {words}", *toy) for words, toy in kind.more_toys().items()]
        if options := kind.paper.get("options"):
            subjects.append(Subject(f"{name}, paper", *kind.toy(_PAPER_ROWS, **options)))
    return subjects


def subject_from(place: str) -> Subject:
    """A method from outside: MODULE:NAME of a class, or of a function without arguments that returns a method and a
    list of batches.

    A class is tried in its `toy` form; without one it is called as `Name(encoder, features=16, samples=64)` and trained
    on small images of (3, 6, 6), in two views.
    """
    made, name = import_object(place, "method"), place.partition(":")[2]
    if isinstance(made, type) and issubclass(made, nn.Module):
        call = f"{name}(encoder, features={ToyImageEncoder.num_features}, samples={SAMPLES})"
        toy = made.toy if issubclass(made, Method) else lambda: toy_method(made)
        return Subject(name, *call_plugin(f"{place} cannot be made by {call}", toy))
    if isinstance(made, type) or not callable(made) or inspect.signature(made).parameters:
        raise PluginError(
            f"{place} is {describe(made)}, expected a class such as nearfar.methods.Method, or a function without "
            "arguments that returns a method and a list of batches"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        given: Any = call_plugin(f"{place}() failed", made)
    if not isinstance(given, tuple | list) or len(given) != 2:
        seen = f"{len(given)} values" if isinstance(given, tuple | list) else f"a {type(given).__name__}"
        raise PluginError(f"{place}() returned {seen}, expected two: a method and a list of batches")
    return Subject(name, given[0], given[1])
