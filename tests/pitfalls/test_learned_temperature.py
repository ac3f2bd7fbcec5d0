"""A temperature as a raw parameter: it passes zero, and all signs change."""

import functools
import math

import pytest
import torch
from torch import Tensor

from nearfar.losses import info_nce
from nearfar.nn.temperature import LogTemperature
from tests.pitfalls import world
from tests.pitfalls.page import Numbers, as_told, code_of
from tests.support.facts import facts

STEPS, RATE, PAIRS = 150, 0.02, 64


class Bounded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.learned = LogTemperature(0.07)

    @property
    def temperature(self) -> Tensor:
        return self.learned()

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return info_nce(z1, z2, temperature=self.temperature)


def walked(loss_of: torch.nn.Module) -> tuple[list[float], list[float]]:
    """Temperatures and losses of a training run, of samples that are easy to tell apart."""
    encoder, generator = world.network(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam([*encoder.parameters(), *loss_of.parameters()], lr=RATE)
    temperatures, losses = [], []
    for _ in range(STEPS):
        x, noise = torch.randn(2, PAIRS, world.FEATURES, generator=generator)
        loss = loss_of(encoder(x), encoder(x + 0.3 * noise))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        temperatures.append(float(loss_of.temperature.detach()))
        losses.append(float(loss.detach()))
    return temperatures, losses


WITHIN = {
    "lowest temperature, wrong": 0.008,
    "last loss, wrong": 0.05,
    "lowest temperature, right": 0.0009,
    "last loss, right": 0.02,
}


@functools.cache
def damage() -> Numbers:
    found = {"log N": math.log(PAIRS)}
    for name, loss in (("wrong", code_of("learned_temperature")["LearnedContrast"]()), ("right", Bounded())):
        temperatures, losses = walked(loss)
        found[f"lowest temperature, {name}"] = min(temperatures)
        found[f"last loss, {name}"] = losses[-1]
    return found


def claim(numbers: Numbers) -> None:
    assert numbers["lowest temperature, wrong"] < 0 < 0.01 <= numbers["lowest temperature, right"]
    assert numbers["last loss, right"] < 0.1 < numbers["log N"] - 0.1 < numbers["last loss, wrong"]


def test_it_passes_zero_and_the_loss_is_that_of_guessing() -> None:
    as_told("learned_temperature", damage(), claim, WITHIN)


def test_the_losses_refuse_a_temperature_below_zero() -> None:
    with pytest.raises(ValueError, match=facts("temperature -0.01 finite 0")):
        info_nce(torch.eye(2), torch.eye(2), temperature=torch.tensor(-0.01))
