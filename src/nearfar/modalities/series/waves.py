"""Built-in series made by code: waves of ten shapes, whatever their period, phase, height, drift and noise."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.modalities.series.data import SeriesDataset

Floats = NDArray[np.float64]

LENGTH = 128
BLOCK = 1024  # samples drawn from one generator; row i of a block is the same however many rows follow it
PERIODS = (16.0, 42.0)  # steps, drawn evenly in their logarithm
WARP, DRIFT, NOISE = 0.25, 1.0, 0.3  # largest change of speed (in its logarithm), of level, and of noise, of a height 1


def waves(n: int = 4_000, *, seed: int = 0, split: Literal["train", "test"] = "train") -> SeriesDataset:
    """n series of 128 steps; the class is the shape of the wave, everything else is chance.

    Sample i depends on (seed, split, i) alone, not on n. Two waves of one shape have nothing in common step by step, so
    Euclidean neighbours know little of the shapes, and what is learned shows.

    >>> data = waves(20)
    >>> data.fetch(torch.arange(3)).shape, data.classes[int(data.labels[0])] in SHAPES
    (torch.Size([3, 1, 128]), True)
    """
    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1 series")
    if split not in ("train", "test"):
        raise ValueError(f"waves have the splits 'train' and 'test', not {split!r}")
    blocks = [_block(seed, split, block) for block in range(-(-n // BLOCK))]
    values = np.concatenate([values for values, _ in blocks])[:n]
    labels = np.concatenate([labels for _, labels in blocks])[:n]
    return SeriesDataset(
        torch.from_numpy(values).unsqueeze(1), labels=torch.from_numpy(labels), classes=list(SHAPES), names=None
    )


def peak(phase: Floats, place: float, width: float) -> Floats:
    return np.exp(-(((phase - place) / width) ** 2))


# The value of each wave at phases from 0 to 1, between -1 and 1.
SHAPES: dict[str, Callable[[Floats], Floats]] = {
    "sine": lambda u: np.sin(2 * np.pi * u),
    "triangle": lambda u: 1 - 4 * np.abs(u - 0.5),
    "square": lambda u: np.where(u < 0.5, 1.0, -1.0),
    "rise": lambda u: 2 * u - 1,
    "fall": lambda u: 1 - 2 * u,
    "pulse": lambda u: 2 * peak(u, 0.5, 0.1) - 1,
    "dip": lambda u: 1 - 2 * peak(u, 0.5, 0.1),
    "double": lambda u: 2 * (peak(u, 0.3, 0.08) + 0.6 * peak(u, 0.62, 0.08)) - 1,
    "stairs": lambda u: np.floor(4 * u) / 1.5 - 1,
    "beat": lambda u: 0.4 * peak(u, 0.2, 0.06) + peak(u, 0.42, 0.05) - peak(u, 0.56, 0.05) + 0.5 * peak(u, 0.8, 0.08),
}


def _block(seed: int, split: str, block: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(BLOCK, 128) values and (BLOCK,) labels."""
    chance = np.random.default_rng([seed, int(split == "test"), block])
    labels = chance.integers(len(SHAPES), size=BLOCK)
    u = chance.random((8, BLOCK, 1))
    time = np.arange(LENGTH) / LENGTH  # (128,)
    period = PERIODS[0] * (PERIODS[1] / PERIODS[0]) ** u[0]
    # The speed rises and falls slowly; the phase is its sum.
    speed = np.exp(WARP * np.sin(2 * np.pi * (time * (0.5 + u[1]) + u[2]))) / period  # (BLOCK, 128)
    phase = (np.cumsum(speed, 1) + u[3]) % 1.0
    values = np.empty((BLOCK, LENGTH))
    for number, shape in enumerate(SHAPES.values()):
        rows = labels == number
        values[rows] = shape(phase[rows])
    drift = DRIFT * u[4] * np.sin(2 * np.pi * (time * (0.25 + 0.5 * u[5]) + u[6]))
    noise = NOISE * u[7] * chance.standard_normal((BLOCK, LENGTH))
    height, level = np.exp(chance.standard_normal((BLOCK, 1))), 3 * chance.standard_normal((BLOCK, 1))
    return (height * (values + drift + noise) + level).astype(np.float32), labels
