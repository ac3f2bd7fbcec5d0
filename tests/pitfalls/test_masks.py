"""Masks of -9e15 and of -inf: errors, NaN, and excluded rows that come back."""

import functools
import math

import pytest
import torch

from nearfar.losses import info_nce
from nearfar.nn.temperature import LogTemperature
from tests.losses.agreement import rows
from tests.pitfalls.page import Numbers, as_told, code_of


@functools.cache
def damage() -> Numbers:
    met = code_of("masks")["masked_loss"]
    z1, z2 = rows(2, 8, 4, dtype=torch.float32)
    some = torch.eye(8, dtype=torch.bool).roll(1, 0)  # one excluded candidate a row
    try:
        met(z1.half(), z2.half(), 0.1, some)
        raised = 0.0
    except RuntimeError:
        raised = 1.0
    temperature = torch.tensor(0.1, requires_grad=True)
    met(z1, z2, temperature, some, float("-inf")).backward()
    learned = LogTemperature(0.1)
    info_nce(z1, z2, temperature=learned(), ids=torch.arange(8) // 2).backward()
    everything = torch.ones(8, 8, dtype=torch.bool)
    return {
        "error in float16, wrong": raised,
        "gradient of the temperature, wrong": float(temperature.grad),  # type: ignore[arg-type]
        "gradient of the temperature, right": float(learned.log.grad),  # type: ignore[arg-type]
        "loss with all excluded, wrong": float(met(z1, z2, 0.1, everything)),
        "loss with all excluded, right": float(info_nce(z1, z2, temperature=0.1, ids=torch.zeros(8, dtype=torch.long))),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["error in float16, wrong"] == 1 and math.isnan(numbers["gradient of the temperature, wrong"])
    assert math.isfinite(numbers["gradient of the temperature, right"])
    assert numbers["loss with all excluded, wrong"] == pytest.approx(math.log(8), abs=0.005)
    assert numbers["loss with all excluded, right"] == 0


def test_errors_nan_and_excluded_rows_that_come_back() -> None:
    as_told("masks", damage(), claim)
