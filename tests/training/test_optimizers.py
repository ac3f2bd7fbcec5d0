"""Rates, decay and LARS against their definitions."""

import pytest
import torch
from torch import nn

from nearfar.methods import Method
from nearfar.training.config import OptimizerConfig
from nearfar.training.optimizers import LARS, make_optimiser, rate_factor


def method_of(network: nn.Module) -> Method:
    method = Method()
    method.encoder = network
    return method


def test_norms_biases_and_scalars_do_not_decay() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    network.register_parameter("scale", nn.Parameter(torch.tensor(1.0)))
    decayed, free = method_of(network).parameter_groups(0.1)
    assert {p.ndim for p in decayed["params"]} == {2, 4} and decayed["weight_decay"] == 0.1
    assert {p.ndim for p in free["params"]} == {0, 1} and free["weight_decay"] == 0.0
    assert len(decayed["params"]) + len(free["params"]) == len(list(network.parameters()))


def test_frozen_parameters_are_left_out() -> None:
    network = nn.Linear(2, 2).requires_grad_(False)
    assert sum(len(g["params"]) for g in method_of(network).parameter_groups(0.1)) == 0


@pytest.mark.parametrize(("batch", "expected"), [(256, 0.06), (512, 0.12), (64, 0.015)])
def test_the_rate_scales_with_the_batch(batch: int, expected: float) -> None:
    optimiser = make_optimiser(method_of(nn.Linear(2, 2)), OptimizerConfig(), batch)
    assert optimiser.param_groups[0]["lr"] == pytest.approx(expected)


def test_the_rate_rises_then_falls_and_never_leaves_its_bounds() -> None:
    config = OptimizerConfig(warmup_ratio=0.1, min_lr_ratio=0.01)
    rates = [rate_factor(step, 200, config) for step in range(200)]
    assert rates[:20] == sorted(rates[:20]) and rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[0] == pytest.approx(1 / 20) and max(rates) == 1.0 and 0.01 <= rates[-1] < 0.011


def test_lars_equals_its_algorithm() -> None:
    torch.manual_seed(0)
    weight, bias = nn.Parameter(torch.randn(3, 2).double()), nn.Parameter(torch.randn(3).double())
    groups = [
        {"params": [weight], "weight_decay": 0.01, "adapt": True},
        {"params": [bias], "weight_decay": 0.0, "adapt": False},
    ]
    optimiser = LARS(groups, lr=0.5, momentum=0.9, trust=0.02)
    expected = [weight.detach().clone(), bias.detach().clone()]
    velocity = [torch.zeros_like(x) for x in expected]
    for _ in range(3):
        gradients = [torch.randn_like(x) for x in expected]
        weight.grad, bias.grad = gradients[0].clone(), gradients[1].clone()
        optimiser.step()
        step = gradients[0] + 0.01 * expected[0]
        local = 0.02 * expected[0].norm() / step.norm()
        velocity[0] = 0.9 * velocity[0] + 0.5 * local * step
        velocity[1] = 0.9 * velocity[1] + 0.5 * gradients[1]
        expected = [x - v for x, v in zip(expected, velocity, strict=True)]
    torch.testing.assert_close([weight.detach(), bias.detach()], expected)
