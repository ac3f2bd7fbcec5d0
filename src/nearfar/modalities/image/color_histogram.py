"""Colors without places, as a baseline: where the color is the class, an encoder that forgot it falls behind."""

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.modalities.baseline import Baseline

BINS = 6  # of each of red, green and blue
SIDE = 64  # images are averaged down to at most this side: histograms change little below it


class ColorHistogram(Baseline):
    """The share of pixels in each of 6 × 6 × 6 cells of RGB, as its root: cosines are then Bhattacharyya coefficients.

    Reference: Swain & Ballard 1991, https://doi.org/10.1007/BF00130487
    """

    protocols = ("knn", "linear")
    origin = "colors without places, 6 × 6 × 6 cells of RGB"

    @staticmethod
    def prepare(samples: Tensor) -> Tensor:
        """(B, 3, H, W) uint8, or floating point in [0, 1], to floating point in [0, 1]."""
        x = samples if samples.is_floating_point() else samples.float() / 255
        if max(x.shape[2:]) > SIDE:
            x = F.adaptive_avg_pool2d(x, (min(x.shape[2], SIDE), min(x.shape[3], SIDE)))
        return x

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] to (B, 216)."""
        cells = (x * BINS).long().clamp(0, BINS - 1).flatten(2)  # (B, 3, pixels)
        cell = (cells[:, 0] * BINS + cells[:, 1]) * BINS + cells[:, 2]  # (B, pixels)
        counts = torch.zeros(len(x), BINS**3, device=x.device)
        counts.scatter_add_(1, cell, torch.ones_like(cell, dtype=counts.dtype))
        return (counts / cell.shape[1]).sqrt()
