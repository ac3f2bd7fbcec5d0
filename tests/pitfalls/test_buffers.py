"""An average of parameters alone: batch-norm's statistics stay behind."""

import functools

import torch
from torch import nn

from nearfar.losses import nt_xent
from nearfar.nn.ema import ema_update, frozen_copy
from tests.pitfalls import world
from tests.pitfalls.page import Numbers, as_told, code_of

MOMENTUM = 0.9


class Shifted(nn.Module):
    """Inputs that are not centred, as pixels are not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 20 * torch.linspace(-1, 1, x.shape[1])


def with_batch_norm() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, last = nn.Linear(world.FEATURES, 64), nn.Linear(64, world.DIM)
        return nn.Sequential(Shifted(), first, nn.BatchNorm1d(64), nn.ReLU(), last)


WITHIN = {
    "running mean, right": 0.001,
    "k-NN, wrong": 0.008,
    "k-NN, right": 0.008,
}


@functools.cache
def damage() -> Numbers:
    met = code_of("buffers")["update_target"]
    online = with_batch_norm()
    behind, beside = frozen_copy(online).eval(), frozen_copy(online).eval()
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-3)
    for view1, view2 in world.batches(150):
        optimizer.zero_grad()
        nt_xent(online(view1), online(view2), temperature=0.5).backward()
        optimizer.step()
        met(behind, online, MOMENTUM)
        ema_update(beside, online, MOMENTUM)

    def off(target: nn.Sequential) -> float:
        mean, expected = target[2].running_mean, online[2].running_mean
        return float((mean - expected).norm() / expected.norm())  # type: ignore[operator, union-attr]

    return {
        "running mean, wrong": off(behind),
        "running mean, right": off(beside),
        "k-NN, wrong": world.knn(behind),
        "k-NN, right": world.knn(beside),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["running mean, wrong"] == 1 and numbers["running mean, right"] < 0.1
    assert numbers["k-NN, wrong"] < numbers["k-NN, right"] - 0.1


def test_a_target_without_its_statistics_is_another_network() -> None:
    as_told("buffers", damage(), claim, WITHIN)
