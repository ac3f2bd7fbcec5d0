"""A loss against its reference: value, gradient in every input, and at every tile size."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from nearfar.losses import tile_size

Function = Callable[..., Tensor]
TILE_SIDES: tuple[int | None, ...] = (None, 1, 2, 3, 5)


def rows(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def tiles_of(side: int | None) -> AbstractContextManager[None]:
    return nullcontext() if side is None else tile_size(side)


def value_and_gradients(function: Function, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The value, and the gradient in each input of a sum in which every row has its own weight."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = function(*leaves)
    if not value.requires_grad:  # a reference with nothing to sum is a constant
        return value, *(torch.zeros_like(x) for x in leaves)
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).view_as(value)
    return value.detach(), *torch.autograd.grad(value, leaves, weights, materialize_grads=True)


def assert_near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Every entry within `tolerance` of the largest, or of 1."""
    largest = expected[expected.isfinite()].abs().max().item() if expected.isfinite().any() else 0.0
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=tolerance * max(1.0, largest))


def assert_equals_reference(
    loss: Function, reference: Function, *inputs: Tensor, sides: Iterable[int | None] = TILE_SIDES
) -> None:
    """Value and gradient to 1e-10 in float64, value to 1e-5 in float32, whatever the tile."""
    expected = value_and_gradients(reference, *inputs)
    for side in sides:
        with tiles_of(side):
            for a, b in zip(value_and_gradients(loss, *inputs), expected, strict=True):
                assert_near(a, b, 1e-10)
            value, *gradients = value_and_gradients(loss, *(x.float() for x in inputs))
        assert value.dtype == torch.float32
        assert_near(value, expected[0], 1e-5)
        for a, b in zip(gradients, expected[1:], strict=True):
            assert_near(a, b, 1e-4)


def assert_gradcheck(loss: Function, *inputs: Tensor) -> None:
    """The gradient equals finite differences, in one tile and in many."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    for side in (None, 2):
        with tiles_of(side):
            assert torch.autograd.gradcheck(loss, leaves)
