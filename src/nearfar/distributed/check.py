"""Every loss and its gradient on this machine, compared with its plain definition in float64."""

import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar import losses
from nearfar.losses.engine.precision import Precision
from nearfar.losses.reference import DEFINITIONS, Call, Function

TOLERANCE = 1e-4  # relative, for float32 against float64
TOLERANCES = {"exact": TOLERANCE, "tf32": 0.02, "bf16": 0.2}  # what rounded factors may cost: at 1/τ = 10, ids and all
_ROWS, _FEATURES, _TEMPERATURE = 96, 16, 0.1


class LossCheck(NamedTuple):
    """Relative errors of a loss."""

    loss: str
    tile: int | None
    precision: Precision
    value_error: float
    gradient_error: float  # over the gradients in both views and in the temperature

    @property
    def passed(self) -> bool:
        most = TOLERANCES[self.precision]
        return self.value_error <= most and self.gradient_error <= most


def compare_losses(
    device: torch.device | str = "cpu",
    tiles: tuple[int | None, ...] = (None, 7, 32),
    seed: int = 0,
    precisions: tuple[Precision, ...] = ("exact",),
) -> Iterator[LossCheck]:
    """Compare each loss, in float32 and with several tile sizes, with its plain definition in float64.

    Precisions other than "exact" are compared with automatic tiles.
    """
    generator = torch.Generator().manual_seed(seed)
    z1, z2 = torch.randn(2, _ROWS, _FEATURES, generator=generator, dtype=torch.float64)
    z2 = z1 + 0.5 * z2
    for name, (loss, definition, call) in DEFINITIONS.items():
        true_value, true_gradient = _value_and_gradient(definition, call, z1, z2)
        for tile, precision in [(t, p) for p in precisions for t in (tiles if p == "exact" else (None,))]:
            sized = nullcontext() if tile is None else losses.tile_size(tile)
            with sized, losses.use_engine(precision=precision):
                value, gradient = _value_and_gradient(loss, call, z1.float().to(device), z2.float().to(device))
            errors = relative_error(value, true_value), relative_error(gradient, true_gradient)
            yield LossCheck(name, tile, precision, *errors)


def worst_by_precision(found: Iterable[LossCheck]) -> Iterator[LossCheck]:
    """For each precision the largest errors of any loss, which may be those of two."""
    by_precision: dict[Precision, list[LossCheck]] = {}
    for row in found:
        by_precision.setdefault(row.precision, []).append(row)
    for precision, rows in by_precision.items():
        worst = max(r.value_error for r in rows), max(r.gradient_error for r in rows)
        yield LossCheck("any", None, precision, *worst)


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
    # to the CPU first: some devices have no float64
    return value.detach().cpu().double(), torch.cat([g.flatten() for g in gradients]).cpu().double()


def relative_error(seen: Tensor, expected: Tensor) -> float:
    return float((seen - expected).norm() / expected.norm().clamp(min=1e-12))
