"""The best epoch, chosen on the test set: a number that fresh samples do not confirm."""

import copy
import functools

import torch

from nearfar.losses import nt_xent
from tests.pitfalls import world
from tests.pitfalls.page import as_told, code_of

EPOCHS, STEPS, FEW, MANY = 60, 3, 200, 5000


@functools.cache
def damage() -> dict[str, float]:
    encoder = world.network()
    optimiser = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    seen = []
    for epoch in range(EPOCHS):
        for view1, view2 in world.batches(STEPS, seed=epoch):
            optimiser.zero_grad()
            nt_xent(encoder(view1), encoder(view2), temperature=0.5).backward()
            optimiser.step()
        seen.append((world.knn(encoder, n=FEW, seed=70_000), copy.deepcopy(encoder)))
    reported = code_of("best_epoch")["reported"]([accuracy for accuracy, _ in seen])
    chosen = next(each for accuracy, each in seen if accuracy == reported)
    return {
        "best of 60, on the test set": reported,
        "the same encoder, on fresh samples": world.knn(chosen, n=MANY, seed=80_000),
        "the last encoder, on fresh samples": world.knn(encoder, n=MANY, seed=80_000),
    }


def test_fresh_samples_do_not_confirm_the_best() -> None:
    found = damage()
    assert found["best of 60, on the test set"] > found["the same encoder, on fresh samples"] + 0.01
    as_told("best_epoch", found, off=0.03)
