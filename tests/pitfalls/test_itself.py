"""A view among its own negatives: no embedding is good enough."""

import functools
import math

import pytest
import torch

from nearfar.losses import nt_xent
from tests.pitfalls.page import as_told, code_of

TAU = 0.05


@functools.cache
def damage() -> dict[str, float]:
    met, axes = code_of("itself")["loss_with_itself"], torch.eye(64, dtype=torch.float64)
    wrong, right = float(met(axes, axes, TAU)), float(nt_xent(axes, axes, temperature=TAU))
    return {
        "loss, wrong": wrong,
        "loss, right": right,
        "probability of the positive, wrong": math.exp(-wrong),
        "probability of the positive, right": math.exp(-right),
    }


def test_loss_never_gets_below_log_2() -> None:
    found = damage()
    assert found["loss, wrong"] == pytest.approx(math.log(2), rel=1e-4) and found["loss, right"] < 1e-4
    as_told("itself", found)
