"""Whether colors go with the rest of the pictures, which needs no labels.

An encoder whose views vary colors is taught to ignore them. Where its clusters are clusters of color all the same, the
colors come in kinds that go with what else is in the pictures, as those of fruit do; to ignore them costs. Where
clusters of one color are scattered over those of the encoder, as of shirts, they are chance.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.evaluation.clustering import k_means
from nearfar.losses.arguments import l2_normalize

CLUSTERS = 20
LEAST_PICTURES = 300
CHANCE, CONTENT = 0.22, 0.5  # agreement up to which colors are chance, and from which they are content
_RESTARTS, _DRAWS = 2, 4


@torch.no_grad()
def color_agreement(pictures: Tensor, features: Tensor, seed: int) -> float:
    """How well clusters of color agree with clusters of an encoder: 0 as by chance, 1 if they are the same.

    Args:
        pictures: (N, 3, H, W), uint8.
        features: (N, F), of the same pictures, by an encoder that was trained with colors varied.
        seed: of the clusters; the mean of some draws is taken.
    """
    encoded = l2_normalize(features.cpu().float() - features.cpu().float().mean(0))
    colors, found = middle_colors(pictures), []
    for draw in range(_DRAWS):
        drawn = {"k": CLUSTERS, "seed": seed * _DRAWS + draw, "restarts": _RESTARTS}
        found.append(agreement_beyond_chance(k_means(encoded, **drawn), k_means(colors, **drawn), seed))
    return sum(found) / len(found)


def middle_colors(pictures: Tensor) -> Tensor:
    """(N, 3, H, W) uint8 to (N, 2): the hue and saturation of the middle quarter, standardized over the pictures.

    Red and green beside gray, in parts of the brightness, each pixel alike; blue follows from the two.
    """
    sides = pictures.shape[2:]
    top, left = (side // 4 for side in sides)
    found = []
    for some in pictures.cpu().split(256):
        x = some[:, :, top : sides[0] - top, left : sides[1] - left].float() / 255
        gray = x.mean(1, keepdim=True)
        found.append(((x - gray) / (gray + 0.1))[:, :2].mean((2, 3)))
    colors = torch.cat(found)
    standardized: Tensor = (colors - colors.mean(0)) / colors.std(0).clamp_min(1e-6)
    return standardized


def agreement_beyond_chance(a: Tensor, b: Tensor, seed: int) -> float:
    """The information that two clusterings share, as part of what they could, both less what shuffled ones share.

    >>> a = torch.arange(400) % 4
    >>> agreement_beyond_chance(a, (a + 1) % 4, 0), abs(agreement_beyond_chance(a, a.sort().values, 0)) < 0.1
    (1.0, True)
    """
    generator = torch.Generator().manual_seed(seed)
    shuffled = [_information(a, b[torch.randperm(len(b), generator=generator)]) for _ in range(4)]
    chance = sum(shuffled) / len(shuffled)
    most = math.sqrt(_information(a, a) * _information(b, b))  # geometric mean of the entropies
    return (_information(a, b) - chance) / max(most - chance, 1e-9)


def _information(a: Tensor, b: Tensor) -> float:
    """The mutual information of two (N,) clusterings, in nats."""
    together = F.one_hot(a).double().T @ F.one_hot(b).double() / len(a)  # (A, B)
    apart = together.sum(1, keepdim=True) * together.sum(0, keepdim=True)
    shared = together > 0
    return float((together[shared] * (together[shared] / apart[shared]).log()).sum())
