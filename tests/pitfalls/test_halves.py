"""Two halves for a loss that pairs neighbouring rows: positives are strangers, and nothing is learned."""

import functools
import math

import torch
from torch import Tensor

from nearfar.losses import nt_xent
from tests.pitfalls import world
from tests.pitfalls.page import Numbers, as_told, code_of

TAU = 0.5


def last_loss(loss: world.Loss, encoder: torch.nn.Module) -> float:
    ((view1, view2),) = world.batches(1, seed=7)
    with torch.no_grad():
        return float(loss(encoder(view1), encoder(view2)))


WITHIN = {
    "loss after training, wrong": 0.01,
    "loss after training, right": 0.02,
    "k-NN, untrained": 0.008,
    "k-NN, wrong": 0.008,
    "k-NN, right": 0.008,
}


@functools.cache
def damage() -> Numbers:
    met = code_of("halves")["neighbours_loss"]

    def wrong(z1: Tensor, z2: Tensor) -> Tensor:
        return met(torch.cat([z1, z2]), TAU)

    def right(z1: Tensor, z2: Tensor) -> Tensor:
        return nt_xent(z1, z2, temperature=TAU)

    misled, taught = world.trained(wrong), world.trained(right)
    return {
        "loss after training, wrong": last_loss(wrong, misled),
        "log(2N - 1)": math.log(2 * world.BATCH - 1),
        "loss after training, right": last_loss(right, taught),
        "k-NN, untrained": world.knn(world.network()),
        "k-NN, wrong": world.knn(misled),
        "k-NN, right": world.knn(taught),
    }


def claim(numbers: Numbers) -> None:
    assert abs(numbers["loss after training, wrong"] - numbers["log(2N - 1)"]) < 0.01
    assert numbers["loss after training, right"] < numbers["loss after training, wrong"] - 1
    assert numbers["k-NN, wrong"] < numbers["k-NN, untrained"] + 0.05 < numbers["k-NN, right"] - 0.5


def test_strangers_teach_nothing() -> None:
    as_told("halves", damage(), claim, WITHIN)


def test_in_the_order_it_expects_the_loss_is_right() -> None:
    names = code_of("halves")
    z1, z2 = torch.randn(2, 6, 5, dtype=torch.float64)
    interleaved = torch.stack([z1, z2], 1).flatten(0, 1)
    torch.testing.assert_close(names["neighbours_loss"](interleaved, TAU), nt_xent(z1, z2, temperature=TAU))
