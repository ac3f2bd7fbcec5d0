"""Jensen's inequality in the wrong direction: what "no loss is below" is above the best loss."""

import functools
import math

import torch

from nearfar.lab import contrastive_task, marginal
from tests.pitfalls.page import Numbers, as_told, code_of

TABLE = [[0.45, 0.05], [0.1, 0.4]]
N = 4


@functools.cache
def damage() -> Numbers:
    joint = torch.tensor(TABLE, dtype=torch.float64)
    ratio = joint / (marginal(joint, "x")[:, None] * marginal(joint, "y"))
    task = contrastive_task(TABLE, N)
    return {
        "no loss is below, by the copied proof": code_of("jensen")["least_loss_by_jensen"](TABLE, N),
        "loss of the best critic": task.least_loss,
        "log N - I": math.log(N) - task.information,
        "probability of r < 1": float(joint[ratio < 1].sum()),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["loss of the best critic"] < numbers["no loss is below, by the copied proof"] - 0.01
    assert numbers["log N - I"] < numbers["loss of the best critic"]
    assert numbers["probability of r < 1"] > 0.1


def test_the_best_critic_is_below_what_no_loss_should_be_below() -> None:
    as_told("jensen", damage(), claim)


def test_it_is_so_on_every_table_and_for_every_number_of_candidates() -> None:
    met = code_of("jensen")["least_loss_by_jensen"]
    for seed in range(20):
        joint = torch.rand(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.01
        table = (joint / joint.sum()).tolist()
        for n in (2, 3, 5):
            task = contrastive_task(table, n)
            assert math.log(n) - task.information <= task.least_loss <= met(table, n)
