"""Small labelled images made by code."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Bars:
    """Images with a bright row at the height their label says, under noise."""

    def __init__(
        self, n: int, seed: int, labels: Tensor | None = None, classes: Sequence[str] | None = ("a", "b", "c", "d")
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        truth = torch.arange(n) % 4
        self.images = torch.randint(0, 120, (n, 3, 8, 8), generator=generator, dtype=torch.uint8)
        self.images[torch.arange(n), :, 2 * truth] += 60
        self.labels: Tensor | None = truth if labels is None else labels
        self.classes = classes

    def __len__(self) -> int:
        return len(self.images)

    def fetch(self, indices: Tensor) -> Tensor:
        return self.images[indices]


def prepare(x: Tensor) -> Tensor:
    return x.float() / 255
