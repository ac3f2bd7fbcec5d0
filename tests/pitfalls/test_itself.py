"""A view among its own negatives: no embedding is good enough."""

import functools
import math

import pytest
import torch

from nearfar.losses import nt_xent
from tests.pitfalls.page import Numbers, as_told, code_of

TAU = 0.05


@functools.cache
def damage() -> Numbers:
    met, axes = code_of("itself")["loss_with_itself"], torch.eye(64, dtype=torch.float64)
    wrong, right = float(met(axes, axes, TAU)), float(nt_xent(axes, axes, temperature=TAU))
    return {
        "loss, wrong": wrong,
        "loss, right": right,
        "probability of the positive, wrong": math.exp(-wrong),
        "probability of the positive, right": math.exp(-right),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["loss, wrong"] == pytest.approx(math.log(2), abs=5e-4) and numbers["loss, right"] < 1e-4
    assert numbers["probability of the positive, wrong"] <= 0.5 < 0.99 < numbers["probability of the positive, right"]


def test_loss_never_gets_below_log_2() -> None:
    as_told("itself", damage(), claim)
