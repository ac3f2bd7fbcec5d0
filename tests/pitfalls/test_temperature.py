"""The positive is not divided by the temperature: it is pushed away once it is found."""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.losses import info_nce
from tests.pitfalls import world
from tests.pitfalls.page import Numbers, as_told, code_of

TAU = 0.1


def one_step(loss: world.Loss) -> float:
    """How much a small step of descent adds to the similarity of positives, most of which are found."""
    generator = torch.Generator().manual_seed(0)
    z1 = torch.eye(16, dtype=torch.float64)
    z2 = (z1 + 0.2 * torch.randn(16, 16, generator=generator, dtype=torch.float64)).requires_grad_()
    (slope,) = torch.autograd.grad(loss(z1, z2), z2)
    before, after = (F.cosine_similarity(z1, z).mean() for z in (z2, z2 - 0.01 * slope / slope.norm()))
    return float((after - before).detach())


@torch.no_grad()
def probability(encoder: torch.nn.Module) -> float:
    """The mean probability of the positive, by the definition."""
    ((view1, view2),) = world.batches(1, seed=7)
    z1, z2 = (F.normalize(encoder(x), dim=1) for x in (view1, view2))
    return float((z1 @ z2.T / TAU).softmax(1).diagonal().mean())


WITHIN = {
    "probability of the positive, right": 0.004,
    "probability of the positive, wrong": 0.001,
    "twins found, right": 0.008,
    "twins found, wrong": 0.0008,
}


@functools.cache
def damage() -> Numbers:
    met = code_of("temperature")["info_nce"]

    def wrong(z1: Tensor, z2: Tensor) -> Tensor:
        return met(z1, z2, TAU)

    def right(z1: Tensor, z2: Tensor) -> Tensor:
        return info_nce(z1, z2, temperature=TAU)

    found = {}
    for name, loss in (("wrong", wrong), ("right", right)):
        encoder = world.trained(loss)
        found[f"similarity of positives, one step, {name}"] = one_step(loss)
        found[f"probability of the positive, {name}"] = probability(encoder)
        found[f"twins found, {name}"] = world.twins_found(encoder)
    return dict(sorted(found.items()))


def claim(numbers: Numbers) -> None:
    assert numbers["similarity of positives, one step, wrong"] < 0 < numbers["similarity of positives, one step, right"]
    assert numbers["probability of the positive, wrong"] < 0.3 * numbers["probability of the positive, right"]
    assert numbers["twins found, wrong"] < 0.3 * numbers["twins found, right"]


def test_found_positives_are_pushed_away_and_probabilities_stay_low() -> None:
    as_told("temperature", damage(), claim, WITHIN)


def test_the_wrong_loss_can_be_negative() -> None:
    met = code_of("temperature")["info_nce"]
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert met(opposite, opposite, 3.0) < 0 < info_nce(opposite, opposite, temperature=3.0)
