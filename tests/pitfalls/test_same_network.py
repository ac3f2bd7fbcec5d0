"""A momentum encoder that is the encoder: what is kept never learns."""

import functools

import pytest
import torch
import torch.nn.functional as F

from nearfar.distributed.contract import same_object
from nearfar.distributed.variants import Subject
from nearfar.methods.toy import ToyImageEncoder, toy_batch
from nearfar.nn.ema import ema_distance, ema_update, frozen_copy
from tests.distributed.work import SameObject
from tests.pitfalls import world
from tests.pitfalls.page import Numbers, as_told, code_of
from tests.support.facts import facts, tells


def trained_by(method: torch.nn.Module) -> list[float]:
    """Train what may be trained, and give the losses."""
    optimizer = torch.optim.Adam([p for p in method.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for view1, view2 in world.batches(150):
        q, k = (F.normalize(z, dim=1) for z in method(view1, view2))
        loss = F.cross_entropy(q @ k.T / 0.2, torch.arange(len(q)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


class WithCopy(torch.nn.Module):
    """The same with a true copy, which follows at once: momentum 0, so that nothing else differs."""

    def __init__(self, encoder: torch.nn.Module, head: torch.nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.key = frozen_copy(encoder)

    def forward(self, view1: torch.Tensor, view2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ema_update(self.key, self.encoder, 0.0)
        return self.head(self.encoder(view1)), self.head(self.key(view2)).detach()


WITHIN = {
    "loss, last step": 0.02,
    "weights moved, right": 0.008,
    "k-NN, untrained": 0.008,
    "k-NN, wrong": 0.008,
    "k-NN, right": 0.008,
}


@functools.cache
def damage() -> Numbers:
    torch.manual_seed(0)
    frozen = code_of("same_network")["MomentumContrast"](world.network(), world.DIM)
    taught = WithCopy(world.network(), torch.nn.Linear(world.DIM, world.DIM))
    losses = trained_by(frozen)
    trained_by(taught)
    start = world.network()
    return {
        "loss, first step": losses[0],
        "loss, last step": losses[-1],
        "weights moved, wrong": float(ema_distance(frozen.encoder_q, start)),
        "weights moved, right": float(ema_distance(taught.encoder, start)),
        "k-NN, untrained": world.knn(start),
        "k-NN, wrong": world.knn(frozen.encoder_q),
        "k-NN, right": world.knn(taught.encoder),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["loss, last step"] < numbers["loss, first step"] - 0.5
    assert numbers["weights moved, wrong"] == 0 < 0.5 < numbers["weights moved, right"]
    assert numbers["k-NN, wrong"] == numbers["k-NN, untrained"] < numbers["k-NN, right"] - 0.4


def test_the_loss_falls_and_the_encoder_is_as_it_was() -> None:
    as_told("same_network", damage(), claim, WITHIN)


def test_nearfar_refuses_it_and_the_certificate_names_it() -> None:
    met = code_of("same_network")["MomentumContrast"](world.network(), world.DIM)
    with pytest.raises(ValueError, match=facts("same network momentum")):
        ema_update(met.encoder_k, met.encoder_q, 0.999)
    note = same_object(Subject("wrong", SameObject(ToyImageEncoder()), [toy_batch()]))
    assert tells(note, "same network momentum")
