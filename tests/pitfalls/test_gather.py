"""Rows of other processes without their gradient: the loss is right, the training is not.

The collectives are played by a stand-in, one process after the other; tests/scale has the same on true processes.
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.losses.agreement import rows
from tests.pitfalls.page import Numbers, as_told, code_of

WORLD, ROWS, TAU = 4, 16, 0.2


class Collectives:
    """What torch.distributed gives to one of several processes: numbers of the others."""

    def __init__(self, rank: int, parts: list[Tensor]) -> None:
        self.rank, self.parts = rank, parts

    def get_world_size(self) -> int:
        return len(self.parts)

    def get_rank(self) -> int:
        return self.rank

    def all_gather(self, parts: list[Tensor], _: Tensor) -> None:
        for mine, theirs in zip(parts, self.parts, strict=True):
            mine.copy_(theirs.detach())


@functools.cache
def damage() -> Numbers:
    names = code_of("gather")
    torch.manual_seed(0)
    encoder = nn.Linear(8, 8, bias=False).double()
    x1, noise = rows(2, WORLD * ROWS, 8)
    x2 = x1 + 0.5 * noise

    z1, z2 = F.normalize(encoder(x1), dim=1), F.normalize(encoder(x2), dim=1)
    truth = F.cross_entropy(z1 @ z2.T / TAU, torch.arange(WORLD * ROWS))
    (slope,) = torch.autograd.grad(truth, encoder.weight)

    losses, slopes = [], []
    for rank in range(WORLD):
        of_all = list(encoder(x2).split(ROWS))
        names["dist"] = Collectives(rank, of_all)
        loss = names["loss_of_all"](encoder(x1).split(ROWS)[rank], of_all[rank], TAU)
        losses.append(loss)
        slopes.append(torch.autograd.grad(loss, encoder.weight)[0])
    value, gradient = torch.stack(losses).mean(), torch.stack(slopes).mean(0)  # as DDP averages
    return {
        "error of the loss": float((value - truth).abs() / truth) if not torch.isclose(value, truth) else 0.0,
        "error of the gradient": float((gradient - slope).norm() / slope.norm()),
        "cosine of the gradients": float(F.cosine_similarity(gradient.flatten(), slope.flatten(), dim=0)),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["error of the loss"] == 0 and numbers["error of the gradient"] > 0.2
    assert 0.9 < numbers["cosine of the gradients"] < 0.99


def test_the_loss_is_right_and_the_gradient_is_not() -> None:
    as_told("gather", damage(), claim)
