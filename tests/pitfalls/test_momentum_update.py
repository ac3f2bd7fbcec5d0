"""A momentum update that nobody calls: queries learn to guess a random network."""

import functools

import pytest
import torch

from nearfar.methods import Batch, MoCo, step_buffer
from tests.pitfalls import world
from tests.pitfalls.page import Numbers, as_told, code_of
from tests.support.facts import facts

WITHIN = {
    "twins found, wrong": 0.0004,
    "twins found, right": 0.004,
    "k-NN, wrong": 0.008,
    "k-NN, right": 0.008,
}


@functools.cache
def damage() -> Numbers:
    names = code_of("momentum_update")

    class Updated(names["Pair"]):  # type: ignore[misc]
        """Calls it before each pass of the keys but the first: after each step."""

        def __init__(self, encoder: torch.nn.Module) -> None:
            super().__init__(encoder)
            self.key.register_forward_pre_hook(lambda *_: self.update_key())

    forgotten = names["train"](names["Pair"](world.network()), world.batches(150))
    called = names["train"](Updated(world.network()), world.batches(150))
    return {
        "twins found, wrong": world.twins_found(forgotten.query, forgotten.key),
        "twins found, right": world.twins_found(called.query, called.key),
        "k-NN, wrong": world.knn(forgotten.query),
        "k-NN, right": world.knn(called.query),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["twins found, wrong"] < 0.2 * numbers["twins found, right"]
    assert numbers["k-NN, wrong"] < numbers["k-NN, right"] - 0.1


def test_keys_of_a_random_network_teach_less() -> None:
    as_told("momentum_update", damage(), claim, WITHIN)


def test_a_method_whose_after_step_is_forgotten_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_buffer, "MOST", 3)
    method = MoCo(world.network(), features=world.DIM, dim=8, queue_size=64)
    index = torch.arange(8)
    with pytest.raises(RuntimeError, match=facts("after_step")):
        for view1, view2 in world.batches(4, size=8):
            method(Batch([view1, view2], index, index))
