"""A training step of a method reads nothing from its device: the meta device has no values to read."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nearfar.methods import METHODS, Batch, Method


def on_meta(x: Any) -> Any:
    if is_dataclass(x) and not isinstance(x, type):
        return replace(x, **{f.name: on_meta(getattr(x, f.name)) for f in fields(x) if f.name != "host_index"})
    return tree_map(lambda v: v.to("meta") if isinstance(v, Tensor) else v, x)


# What still reads a value in each step, and why; strict: a method that stops doing so must leave the list.
WAITING = {
    "cpc": "how many frames are predicted depends on the lengths of the sequences, and its losses take only those"
}
CASES = [
    pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=WAITING[name])) if name in WAITING else name
    for name in METHODS
]


def two_steps(method: Method, batches: list[Batch]) -> None:
    method = method.double().to("meta")
    for batch in batches:
        step = method.contrast(method.encode(on_meta(replace(batch, host_index=batch.index))))  # as a run has it
        step.loss.backward()
        with torch.no_grad():
            method.after_step(0.5)
    assert any(p.grad is not None for p in method.parameters())


@pytest.mark.parametrize("name", CASES)
def test_two_steps_wait_for_nothing(name: str) -> None:
    two_steps(*METHODS[name].toy())


@pytest.mark.parametrize("name, case", [(name, case) for name in METHODS for case in METHODS[name].more_toys()])
def test_two_steps_with_other_options_wait_for_nothing(name: str, case: str) -> None:
    two_steps(*METHODS[name].more_toys()[case])
