"""The encoder that learns most per second on a CPU: a fixed first layer, then a few stages of two convolutions."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, LAST = 64, 256
COMPONENTS = 27  # of the fixed basis: all of 3 × 3 pixels, the lowest frequencies of larger patches


class QuickNet(nn.Module):
    """A fixed basis of patches, standardised and split by sign, then stages that halve the image.

    Decorrelated patches of the image are what a first layer has to learn anyway; with them given, a short run spends
    its steps on the rest. The basis is the cosine transform of a patch in opponent colours, close to the principal
    components of patches of photographs. Standardising each component with a floor (`eps`) whitens them.

    Patches overlap by half, and their step grows with the image, so that the first map, which costs most, has about
    16 × 16 places for images of 32 and 64 pixels: in short runs more steps teach more than finer maps do
    (benchmarks/results/learning.md).

    Args:
        size: pixels of a side, from which step and number of stages follow: the last map has about 4 × 4 places.

    Related: the frozen whitening layer of https://arxiv.org/abs/2404.00498.
    """

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        stride = 1 if size < 24 else 2 if size < 48 else 4
        patch = max(3, 2 * stride)
        basis = cosine_patches(patch)[:COMPONENTS]
        self.first = nn.Conv2d(3, len(basis), patch, stride=stride, padding=max(1, patch // 4), bias=False)
        self.first.weight = nn.Parameter(basis, requires_grad=False)
        self.norm = nn.BatchNorm2d(len(basis), affine=False, eps=1e-2)
        count = max(2, round(math.log2(size / stride / 4)))
        widths = [2 * len(basis), *(min(LAST, WIDTH << i) for i in range(count - 1)), LAST]
        self.stages = nn.Sequential(*(_Stage(a, b) for a, b in pairwise(widths)))
        self.num_features = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x))
        x = F.relu(torch.cat([x, -x], 1), inplace=True)
        h: Tensor = self.stages(x).mean((2, 3))  # (B, F)
        return h


class _Stage(nn.Module):
    """Convolution, halving, convolution; each with a batch-norm and a ReLU."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(F.max_pool2d(self.conv1(x), 2)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)), inplace=True)


def cosine_patches(side: int) -> Tensor:
    """(3 · side², 3, side, side), an orthonormal basis of patches of three colours, low frequencies first.

    Frequencies are those of the cosine transform (DCT-II), colours are brightness, red against blue, and green against
    both.

    >>> flat = cosine_patches(3).flatten(1)
    >>> torch.allclose(flat @ flat.T, torch.eye(27), atol=1e-6)
    True
    """
    place, frequency = torch.arange(side) + 0.5, torch.arange(side)
    waves = torch.cos(math.pi * frequency[:, None] * place / side)  # (frequency, place)
    waves = waves / waves.norm(dim=1, keepdim=True)
    colors = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 2.0, -1.0]])
    colors = colors / colors.norm(dim=1, keepdim=True)
    patches = torch.einsum("yi,xj,oc->yxocij", waves, waves, colors)
    order = (frequency[:, None] + frequency).flatten().argsort(stable=True)
    return patches.flatten(0, 1)[order].flatten(0, 1).contiguous()
