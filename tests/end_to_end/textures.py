"""An easy data set, made on the spot: four textures, in noise, that no crop, flip or colour changes."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = 4


def textures(n: int, *, seed: int, size: int = 20) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(n, size, size, 3) uint8 and (n,) labels. Each label is recognised after a crop or a flip, and in any colour.

    The noise is as strong as the pattern: an untrained encoder sees much of it, a trained one has filters against it.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    y, x = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    images = np.empty((n, size, size, 3))
    for i, label in enumerate(labels):
        period = rng.uniform(5, 8)
        u, v = (2 * np.pi * t / period + rng.uniform(0, 2 * np.pi) for t in (x, y))
        pattern = _pattern(int(label), u, v, rng.choice([-1, 1]))  # (size, size) from -1 to 1
        middle, strength = rng.uniform(0.4, 0.6), rng.uniform(0.1, 0.18) * rng.choice([-1, 1])
        tint = rng.uniform(0.95, 1.0, 3)
        images[i] = (middle + strength * pattern)[:, :, None] * tint
    images += rng.normal(0, 0.2, images.shape)
    return (255 * images.clip(0, 1)).round().astype(np.uint8), labels


def _pattern(label: int, u: NDArray[np.float64], v: NDArray[np.float64], way: int) -> NDArray[np.float64]:
    across, down = np.sin(u), np.sin(v)
    return [across, down, np.sin((u + way * v) / np.sqrt(2)), across * down][label]


def write(folder: Path, *, train: int = 640, test: int = 256) -> tuple[Path, Path]:
    """The training and the test part as .npz files."""
    paths = folder / "train.npz", folder / "test.npz"
    for path, n, seed in zip(paths, (train, test), (0, 1), strict=True):
        x, y = textures(n, seed=seed)
        np.savez(path, x=x, y=y)
    return paths
