"""Muon: orthogonalised steps, compared with singular values in float64; AdamW beside it, compared with torch's."""

import copy

import pytest
import torch
from torch import Tensor, nn

from nearfar.training.muon import COEFFICIENTS, Muon, orthogonalize


def by_singular_values(matrix: Tensor, steps: int) -> Tensor:
    """What Newton-Schulz iterations do, on the singular values alone, in float64."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    a, b, c = COEFFICIENTS
    s = s / matrix.double().norm()
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return u @ s.diag() @ v


@pytest.mark.parametrize("shape", [(5, 5), (4, 30), (30, 4), (1, 7), (7, 1)])
@pytest.mark.parametrize("steps", [1, 5])
def test_orthogonalize_equals_its_polynomial_on_the_singular_values(shape: tuple[int, int], steps: int) -> None:
    matrix = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(orthogonalize(matrix, steps), by_singular_values(matrix, steps), rtol=1e-9, atol=1e-12)


def test_singular_values_end_near_one_whatever_they_were() -> None:
    u, _, v = torch.linalg.svd(torch.randn(16, 40, dtype=torch.float64), full_matrices=False)
    matrix = u @ torch.logspace(0, -2, 16, dtype=torch.float64).diag() @ v * 1e6
    singular = torch.linalg.svdvals(orthogonalize(matrix))
    assert singular.min() > 0.5 and singular.max() < 1.3


def test_a_zero_gradient_moves_nothing() -> None:
    weight = nn.Parameter(torch.randn(3, 4))
    before = weight.detach().clone()
    weight.grad = torch.zeros_like(weight)
    Muon([weight]).step()
    torch.testing.assert_close(weight.detach(), before, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(6, 4), (6, 3, 2, 2), (3, 8)])
def test_two_steps_of_a_kernel_equal_plain_loops_in_float64(shape: tuple[int, ...]) -> None:
    weight = nn.Parameter(torch.randn(shape, dtype=torch.float64))
    gradients = torch.randn(2, *shape, dtype=torch.float64)
    expected, momentum = weight.detach().clone(), torch.zeros_like(weight)
    optimizer = Muon([weight], lr=0.1, momentum=0.9, weight_decay=0.05)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
        momentum = 0.9 * momentum + 0.1 * gradient
        ahead = 0.9 * momentum + 0.1 * gradient
        step = by_singular_values(ahead.reshape(shape[0], -1), 5).reshape(shape)
        scale = max(1.0, shape[0] / expected[0].numel()) ** 0.5
        expected = expected * (1 - 0.1 * 0.05) - 0.1 * scale * step
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-9, atol=1e-12)


def test_everything_else_moves_as_torchs_adamw() -> None:
    ours, theirs = (nn.Parameter(torch.arange(5.0, dtype=torch.float64)) for _ in range(2))
    table = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))  # a matrix that its group keeps from Muon
    copy = nn.Parameter(table.detach().clone())
    muon = Muon([{"params": [ours]}, {"params": [table], "adapt": False}], lr=0.02, scalar_lr=0.5, weight_decay=0.1)
    adamw = torch.optim.AdamW([theirs, copy], lr=0.01, weight_decay=0.1)
    for _ in range(4):
        for parameter, twin in ((ours, theirs), (table, copy)):
            parameter.grad = torch.randn_like(parameter)
            twin.grad = parameter.grad.clone()
        muon.step()
        adamw.step()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(table, copy)


def test_its_state_survives_a_round_trip_bit_for_bit() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    x = torch.randn(8, 3, 3, 3)

    def step(network: nn.Module, optimizer: Muon) -> None:
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()

    optimizer = Muon(network.parameters())
    step(network, optimizer)
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    state = copy.deepcopy(optimizer.state_dict())
    again = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    again.load_state_dict(weights)
    resumed = Muon(again.parameters())
    resumed.load_state_dict(state)
    step(network, optimizer)
    step(again, resumed)
    for a, b in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
