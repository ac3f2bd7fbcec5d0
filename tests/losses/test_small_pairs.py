"""Losses of two views of small batches, which are one function of autograd: beside their definitions and the tiles."""

import pytest
import torch
from torch import Tensor

from nearfar.losses import tile_size
from nearfar.losses.engine import small_pairs
from tests.losses.agreement import assert_near, number, rows
from tests.losses.catalogue import TWO_VIEW_LOSSES
from tests.losses.watch import watched

FUSED = ("nt_xent", "decoupled", "info_nce", "info_nce, dot", "symmetric_info_nce", "sigmoid_pairs")
IDS = torch.tensor([4, 0, 4, 1, 2, 2])


def value_and_gradients(name: str, reduction: str, ids: Tensor | None, *inputs: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    z1, z2, temperature = leaves
    loss = TWO_VIEW_LOSSES[name].loss(z1, z2, temperature=temperature, ids=ids, reduction=reduction)
    weights = torch.linspace(1, 2, loss.numel(), dtype=loss.dtype).view_as(loss)
    return [loss.detach(), *torch.autograd.grad(loss, leaves, weights)]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ids", [None, IDS])
@pytest.mark.parametrize("temperature", [0.5, 1e-4])  # plain exponentials, and those that would overflow
@pytest.mark.parametrize("name", FUSED)
def test_value_and_gradients_are_those_of_tiles(
    name: str, temperature: float, ids: Tensor | None, reduction: str
) -> None:
    inputs = rows(6, 4), rows(6, 4, seed=1), number(temperature)
    found = value_and_gradients(name, reduction, ids, *inputs)
    with tile_size(4):
        expected = value_and_gradients(name, reduction, ids, *inputs)
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b, 1e-10)


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("learned", [0, 1])
def test_one_side_alone_may_have_a_gradient(name: str, learned: int) -> None:
    views = [rows(6, 4), rows(6, 4, seed=1)]
    expected = value_and_gradients(name, "mean", None, *views, number(0.3))[1 + learned]
    views[learned].requires_grad_()
    TWO_VIEW_LOSSES[name].loss(*views, temperature=0.3).backward()
    assert_near(views[learned].grad, expected, 1e-12)
    assert views[1 - learned].grad is None


@pytest.mark.parametrize("name", FUSED)
def test_a_row_of_zeros_gets_no_gradient_and_half_precision_gets_its_own_type(name: str) -> None:
    z1, z2 = rows(6, 4).bfloat16(), rows(6, 4, seed=1).bfloat16()
    z1[2] = 0
    z1.requires_grad_()
    loss = TWO_VIEW_LOSSES[name].loss(z1, z2, temperature=0.3)
    loss.backward()
    assert loss.dtype == torch.float32 and z1.grad is not None and z1.grad.dtype == torch.bfloat16
    assert z1.grad.isfinite().all()
    if name != "info_nce, dot":
        assert not z1.grad[2].any()


@pytest.mark.parametrize("name", FUSED)
def test_second_derivatives_pass_gradgradcheck(name: str) -> None:
    inputs = rows(4, 3).requires_grad_(), rows(4, 3, seed=1).requires_grad_(), number(0.4).requires_grad_()
    loss = TWO_VIEW_LOSSES[name].loss
    for reduction in ("mean", "none"):
        assert torch.autograd.gradgradcheck(
            lambda a, b, t, reduction=reduction: loss(a, b, temperature=t, reduction=reduction), inputs
        )


@pytest.mark.parametrize("name", ["nt_xent", "info_nce", "symmetric_info_nce", "sigmoid_pairs"])
def test_a_small_step_takes_few_operations(name: str) -> None:
    loss = TWO_VIEW_LOSSES[name].loss
    assert watched(lambda a, b: loss(a, b, temperature=0.2), rows(8, 4), rows(8, 4, seed=1)).operations <= 75


def test_larger_batches_take_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(4, 2)
    monkeypatch.setattr(small_pairs, "_FEW_PAIRS", 15)
    assert small_pairs.small_loss(x, x, 0.5, None, "one way", "mean") is None
    assert small_pairs.small_loss(x, x, 0.5, None, "stacked", "mean") is not None
