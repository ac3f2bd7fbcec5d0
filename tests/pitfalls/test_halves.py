"""Two halves for a loss that pairs neighbouring rows: positives are strangers, and nothing is learned."""

import functools
import math

import torch
from torch import Tensor

from nearfar.losses import nt_xent
from tests.pitfalls import world
from tests.pitfalls.page import as_told, code_of

TAU = 0.5


def last_loss(loss: world.Loss, encoder: torch.nn.Module) -> float:
    ((view1, view2),) = world.batches(1, seed=7)
    with torch.no_grad():
        return float(loss(encoder(view1), encoder(view2)))


@functools.cache
def damage() -> dict[str, float]:
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


def test_strangers_teach_nothing() -> None:
    found = damage()
    assert abs(found["loss after training, wrong"] - found["log(2N - 1)"]) < 0.1
    assert found["k-NN, wrong"] < found["k-NN, untrained"] + 0.1 < found["k-NN, right"] - 0.1
    as_told("halves", found, within=0.15, off=0.03)


def test_in_the_order_it_expects_the_loss_is_right() -> None:
    names = code_of("halves")
    z1, z2 = torch.randn(2, 6, 5, dtype=torch.float64)
    interleaved = torch.stack([z1, z2], 1).flatten(0, 1)
    torch.testing.assert_close(names["neighbours_loss"](interleaved, TAU), nt_xent(z1, z2, temperature=TAU))
