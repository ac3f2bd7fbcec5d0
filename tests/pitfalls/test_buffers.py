"""An average of parameters alone: batch-norm's statistics stay behind."""

import functools

import torch
from torch import nn

from nearfar.losses import nt_xent
from nearfar.nn import copy_of, move_towards
from tests.pitfalls import world
from tests.pitfalls.page import as_told, code_of

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


@functools.cache
def damage() -> dict[str, float]:
    met = code_of("buffers")["update_target"]
    online = with_batch_norm()
    behind, beside = copy_of(online).eval(), copy_of(online).eval()
    optimiser = torch.optim.Adam(online.parameters(), lr=3e-3)
    for view1, view2 in world.batches(150):
        optimiser.zero_grad()
        nt_xent(online(view1), online(view2), temperature=0.5).backward()
        optimiser.step()
        met(behind, online, MOMENTUM)
        move_towards(beside, online, MOMENTUM)

    def off(target: nn.Sequential) -> float:
        mean, expected = target[2].running_mean, online[2].running_mean
        return float((mean - expected).norm() / expected.norm())  # type: ignore[operator, union-attr]

    return {
        "running mean, wrong": off(behind),
        "running mean, right": off(beside),
        "k-NN, wrong": world.knn(behind),
        "k-NN, right": world.knn(beside),
    }


def test_a_target_without_its_statistics_is_another_network() -> None:
    found = damage()
    assert found["running mean, wrong"] == 1 and found["running mean, right"] < 0.1
    assert found["k-NN, wrong"] < found["k-NN, right"] - 0.1
    as_told("buffers", found, within=0.15, off=0.05)
