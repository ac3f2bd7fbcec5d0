"""Every loss and its gradient on this machine, compared with its plain definition in float64."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar import losses
from nearfar.losses.reference import DEFINITIONS, Call, Function

TOLERANCE = 1e-4  # relative, for float32 against float64
_ROWS, _FEATURES, _TEMPERATURE = 96, 16, 0.1


class LossCheck(NamedTuple):
    """Relative errors of a loss."""

    loss: str
    tile: int | None
    value_error: float
    gradient_error: float  # over the gradients in both views and in the temperature

    @property
    def passed(self) -> bool:
        return self.value_error <= TOLERANCE and self.gradient_error <= TOLERANCE


def compare_losses(
    device: torch.device | str = "cpu", tiles: tuple[int | None, ...] = (None, 7, 32), seed: int = 0
) -> Iterator[LossCheck]:
    """Compare each loss, in float32 and with several tile sizes, with its plain definition in float64."""
    generator = torch.Generator().manual_seed(seed)
    z1, z2 = torch.randn(2, _ROWS, _FEATURES, generator=generator, dtype=torch.float64)
    z2 = z1 + 0.5 * z2
    for name, (loss, definition, call) in DEFINITIONS.items():
        true_value, true_gradient = _value_and_gradient(definition, call, z1, z2)
        for tile in tiles:
            with nullcontext() if tile is None else losses.tile_size(tile):
                value, gradient = _value_and_gradient(loss, call, z1.float().to(device), z2.float().to(device))
            yield LossCheck(name, tile, relative_error(value, true_value), relative_error(gradient, true_gradient))


def time_large_batch(pairs: int, device: torch.device | str = "cpu", features: int = 128) -> tuple[float, float]:
    """Seconds and loss of one NT-Xent step, forward and backward, on random embeddings."""
    z1, z2 = torch.randn(2, pairs, features, device=device).requires_grad_()
    start = time.perf_counter()
    loss = losses.nt_xent(z1, z2, temperature=_TEMPERATURE)
    loss.backward()
    value = float(loss.detach())  # waits for the device
    return time.perf_counter() - start, value


def _value_and_gradient(loss: Function, call: Call, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    a, b = z1.clone().requires_grad_(), z2.clone().requires_grad_()
    temperature = torch.tensor(_TEMPERATURE, dtype=z1.dtype, device=z1.device, requires_grad=True)
    value = call(loss, a, b, temperature).mean()  # the definition gives rows
    gradients = torch.autograd.grad(value, [a, b, temperature], allow_unused=True, materialize_grads=True)
    return value.detach().double().cpu(), torch.cat([g.flatten() for g in gradients]).double().cpu()


def relative_error(seen: Tensor, expected: Tensor) -> float:
    return float((seen - expected).norm() / expected.norm().clamp(min=1e-12))
