"""Checks of arguments that views and methods share."""

import functools

import torch
from torch import Tensor


@functools.lru_cache(maxsize=64)
def cached_tensor(values: float | tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A small constant tensor, made once: making one for every chunk would cost more than using it."""
    return torch.tensor(values, dtype=dtype, device=device)


def check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}, expected a probability from 0 to 1")


def check_range(name: str, value: tuple[float, float], most: float = float("inf")) -> None:
    """0 < low <= high <= most."""
    if len(value) != 2 or not 0 < value[0] <= value[1] <= most:
        bound = f" <= {most:g}" if most < float("inf") else ""
        raise ValueError(f"{name} is {value!r}, expected (low, high) with 0 < low <= high{bound}")
