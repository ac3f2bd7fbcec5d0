"""Masks of -9e15 and of -inf: errors, NaN, and excluded rows that come back."""

import functools
import math

import pytest
import torch

from nearfar.losses import info_nce
from nearfar.nn import LogTemperature
from tests.losses.agreement import rows
from tests.pitfalls.page import as_told, code_of


@functools.cache
def damage() -> dict[str, float]:
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


def test_errors_nan_and_excluded_rows_that_come_back() -> None:
    found = damage()
    assert found["error in float16, wrong"] == 1 and math.isnan(found["gradient of the temperature, wrong"])
    assert math.isfinite(found["gradient of the temperature, right"])
    assert found["loss with all excluded, wrong"] == pytest.approx(math.log(8), rel=1e-4)
    assert found["loss with all excluded, right"] == 0
    as_told("masks", found)
