"""Every loss and its gradient on this machine, compared with its plain definition in float64."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar import losses
from nearfar.losses import reference

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
    """Compare each loss, in float32 and with several tile sizes, with `losses.reference` in float64."""
    generator = torch.Generator().manual_seed(seed)
    z1, z2 = torch.randn(2, _ROWS, _FEATURES, generator=generator, dtype=torch.float64)
    z2 = z1 + 0.5 * z2
    for name in CALLS:
        true_value, true_gradient = _value_and_gradient(reference, name, z1, z2)
        for tile in tiles:
            with nullcontext() if tile is None else losses.tile_size(tile):
                value, gradient = _value_and_gradient(losses, name, z1.float().to(device), z2.float().to(device))
            yield LossCheck(name, tile, relative_error(value, true_value), relative_error(gradient, true_gradient))


def time_large_batch(pairs: int, device: torch.device | str = "cpu", features: int = 128) -> tuple[float, float]:
    """Seconds and loss of one NT-Xent step, forward and backward, on random embeddings."""
    z1, z2 = torch.randn(2, pairs, features, device=device).requires_grad_()
    start = time.perf_counter()
    loss = losses.nt_xent(z1, z2, temperature=_TEMPERATURE)
    loss.backward()
    value = float(loss.detach())  # waits for the device
    return time.perf_counter() - start, value


def _value_and_gradient(module: ModuleType, name: str, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    a, b = z1.clone().requires_grad_(), z2.clone().requires_grad_()
    temperature = torch.tensor(_TEMPERATURE, dtype=z1.dtype, device=z1.device, requires_grad=True)
    value = CALLS[name](getattr(module, name), a, b, temperature).mean()  # the reference gives rows
    gradients = torch.autograd.grad(value, [a, b, temperature], allow_unused=True, materialize_grads=True)
    return value.detach().double().cpu(), torch.cat([g.flatten() for g in gradients]).double().cpu()


def relative_error(seen: Tensor, expected: Tensor) -> float:
    return float((seen - expected).norm() / expected.norm().clamp(min=1e-12))


def _labeled(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """Both views in one tensor, and a label for each row."""
    return torch.cat([z1, z2]), torch.arange(2 * len(z1), device=z1.device) % 5


def _many_views(z1: Tensor, z2: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Three views and two local ones."""
    return [z1, z2, z1 + z2.roll(1, 1)], [2 * z1 - z2, z2 + z1.roll(1, 1)]


Call = Callable[[Callable[..., Tensor], Tensor, Tensor, Tensor], Tensor]  # a loss, two views and a temperature
_two_views: Call = lambda loss, a, b, t: loss(a, b, temperature=t)  # noqa: E731
_views_alone: Call = lambda loss, a, b, t: loss(a, b)  # noqa: E731

CALLS: dict[str, Call] = {
    "info_nce": _two_views,
    "nt_xent": _two_views,
    "nt_xent_views": lambda loss, a, b, t: loss(*_many_views(a, b), temperature=t),
    "symmetric_info_nce": _two_views,
    "decoupled": _two_views,
    "debiased": lambda loss, a, b, t: loss(a, b, temperature=t, positive_prior=0.01),
    "hard_negative": lambda loss, a, b, t: loss(a, b, temperature=t, beta=0.5, positive_prior=0.01),
    "top_k_info_nce": lambda loss, a, b, t: loss(a, b, temperature=t, k=8),
    "sup_con": lambda loss, a, b, t: loss(*_labeled(a, b), temperature=t),
    "sigmoid_pairs": lambda loss, a, b, t: loss(a, b, logit_scale=1 / t, logit_bias=-10.0),
    "nce": lambda loss, a, b, t: loss(a, b, b.flip(0), temperature=t, bank_size=1000, log_normalizer=9.0),
    "triplet": lambda loss, a, b, t: loss(a, b, b.roll(1, 0), margin=6.0),
    "batch_triplet": lambda loss, a, b, t: loss(*_labeled(a, b), margin=1.0),
    "cosine_regression": _views_alone,
    "barlow_twins": _views_alone,
    "vicreg": _views_alone,
    "vicreg_views": lambda loss, a, b, t: loss(*_many_views(a, b)),
}
