"""Rates, decay and LARS against their definitions."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from nearfar.methods import Method
from nearfar.methods.method import decay_groups
from nearfar.training.config import OptimizerConfig
from nearfar.training.optimizers import LARS, make_optimizer, rate_factor, set_rates


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
    optimizer = make_optimizer(method_of(nn.Linear(2, 2)), OptimizerConfig(), batch)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)


def test_the_rate_may_scale_with_the_root_of_the_batch() -> None:
    """SimCLR v2's 0.075 times the root of the batch is 1.2 at batch 256."""
    optimizer = make_optimizer(method_of(nn.Linear(2, 2)), OptimizerConfig(lr=1.2, scale_lr="sqrt"), 4096)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.075 * math.sqrt(4096))


def test_the_rate_rises_then_falls_and_never_leaves_its_bounds() -> None:
    config = OptimizerConfig(warmup_ratio=0.1, min_lr_ratio=0.01)
    rates = [rate_factor(step, 200, config) for step in range(200)]
    assert rates[:20] == sorted(rates[:20]) and rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[0] == pytest.approx(1 / 20) and max(rates) == 1.0 and 0.01 <= rates[-1] < 0.011


@pytest.mark.parametrize("inside", [True, False])
def test_lars_equals_its_algorithm(inside: bool) -> None:
    """In float64, under a rate that changes: the momentum sums rate times step, or steps alone."""
    torch.manual_seed(0)
    weight, bias = nn.Parameter(torch.randn(3, 2).double()), nn.Parameter(torch.randn(3).double())
    groups = [
        {"params": [weight], "weight_decay": 0.01, "adapt": True},
        {"params": [bias], "weight_decay": 0.0, "adapt": False},
    ]
    optimizer = LARS(groups, lr=0.5, momentum=0.9, trust=0.02, lr_in_momentum=inside)
    expected = [weight.detach().clone(), bias.detach().clone()]
    velocity = [torch.zeros_like(x) for x in expected]
    for rate in (0.0, 0.5, 0.3, 0.1):
        gradients = [torch.randn_like(x) for x in expected]
        weight.grad, bias.grad = gradients[0].clone(), gradients[1].clone()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        step = gradients[0] + 0.01 * expected[0]
        steps = [step * 0.02 * expected[0].norm() / step.norm(), gradients[1]]
        for i in range(2):
            velocity[i] = 0.9 * velocity[i] + (rate if inside else 1.0) * steps[i]
            expected[i] = expected[i] - (1.0 if inside else rate) * velocity[i]
    torch.testing.assert_close([weight.detach(), bias.detach()], expected, rtol=1e-14, atol=0)


def test_lars_reads_the_state_of_earlier_versions() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = LARS([weight], lr=0.1)
    state = optimizer.state_dict()
    del state["param_groups"][0]["lr_in_momentum"]
    optimizer.load_state_dict(state)
    weight.grad = torch.ones(2, 2)
    optimizer.step()
    assert bool((weight < 1).all())


def test_decay_of_everything_and_a_rate_that_is_not_scaled() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    config = OptimizerConfig(lr=0.03, weight_decay=1e-4, decay_all=True, scale_lr="none")
    optimizer = make_optimizer(method_of(network), config, 64)
    assert {(group["lr"], group["weight_decay"]) for group in optimizer.param_groups} == {(0.03, 1e-4)}


def test_adamw_takes_beta2_and_eps() -> None:
    config = OptimizerConfig(name="adamw", beta2=0.98, eps=1e-6)
    group = make_optimizer(method_of(nn.Linear(2, 2)), config, 256).param_groups[0]
    assert group["betas"] == (0.9, 0.98) and group["eps"] == 1e-6


def test_groups_may_scale_their_rate_and_keep_it_constant() -> None:
    class Own(Method):
        def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
            weights, others = decay_groups(self.parameters(), weight_decay)
            return [weights, {**others, "lr_scale": 0.1, "constant_lr": True}]

    method = Own()
    method.encoder = nn.Linear(2, 2)
    optimizer = make_optimizer(method, OptimizerConfig(lr=0.5), 256)
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
    set_rates(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.25, 0.05])


def test_the_step_schedule_divides_by_ten_at_each_milestone() -> None:
    config = OptimizerConfig(warmup_ratio=0.0, schedule="step", milestones=[0.6, 0.8])
    rates = [rate_factor(epoch * 7, 200 * 7, config, epochs=200) for epoch in range(200)]
    assert rates == pytest.approx([1.0] * 120 + [0.1] * 40 + [0.01] * 40)


def test_linear_and_constant_schedules() -> None:
    linear = OptimizerConfig(warmup_ratio=0.0, schedule="linear")
    constant = OptimizerConfig(warmup_ratio=0.0, schedule="constant")
    assert [rate_factor(step, 4, linear) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert {rate_factor(step, 4, constant) for step in range(4)} == {1.0}


def test_a_schedule_per_epoch_moves_once_an_epoch() -> None:
    config = OptimizerConfig(warmup_ratio=0.0, per_epoch=True)
    rates = [rate_factor(step, 30, config, epochs=10) for step in range(30)]
    by_hand = [(1 + math.cos(math.pi * epoch / 10)) / 2 for epoch in range(10) for _ in range(3)]
    assert rates == pytest.approx(by_hand)


def test_warm_up_in_epochs_from_zero() -> None:
    """As BYOL, MoCo v3, Barlow Twins and VICReg: step / warm-up steps, then a cosine of what is left."""
    config = OptimizerConfig(warmup_epochs=10, warmup_from_zero=True, min_lr_ratio=0.001)
    rates = [rate_factor(step, 400, config, epochs=100) for step in range(400)]
    for step, rate in enumerate(rates):
        q = (1 + math.cos(math.pi * (step - 40) / 360)) / 2
        assert rate == pytest.approx(step / 40 if step < 40 else q + 0.001 * (1 - q))
    assert rate_factor(3, 4, config, epochs=5) == 0.75  # a run shorter than the warm-up


@pytest.mark.parametrize(
    "wrong", [{"milestones": [0.8, 0.6]}, {"milestones": [60.0]}, {"beta2": 1.0}, {"eps": 0.0}, {"warmup_epochs": -1.0}]
)
def test_settings_outside_of_their_limits_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"optimizer.{next(iter(wrong))}"):
        OptimizerConfig(**wrong)
