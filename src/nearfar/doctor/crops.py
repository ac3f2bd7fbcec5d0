"""Copies of which a border was cut off: two pictures that are the same where one is laid on a part of the other.

The small copies of neighbors are aligned first (Lucas and Kanade 1981: least squares on the gradients, here for scale
and shift in each direction). Pairs that then look alike are read again, aligned at 48 pixels, and called copies at a
cosine of `CROP_COSINE`, if the part is inside of the other and pictures are large enough to tell.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nearfar.doctor.scan import ScannedImage
from nearfar.search.search import Hits

SIDE = 48  # pixels at which pairs are decided
LOOKED_AT = 8  # neighbors of each image
LOWEST = 0.7  # cosine of the small copies, below which pairs are not aligned
ALIKE = 0.95  # cosine of the aligned small copies, from which both are read again
CROP_COSINE = 0.98  # no two others of 1,000 product photos reach 0.97; nine of ten with 2 or 5 % cut off are above
LARGEST_CUT = 0.25  # part of a side
SMALLEST = 96  # pixels of a short side: letters and thumbnails can be aligned with others of their kind
_OUTSIDE = 0.04  # of half a side that a part may reach beyond the border, by rounding
_BLOCK, _BLOCK_LARGE = 4096, 256  # pairs aligned at a time


def crop_pairs(
    hits: Hits, images: Sequence[ScannedImage], read: Callable[[int], NDArray[np.uint8] | None]
) -> list[tuple[int, int]]:
    """Pairs of images of which one shows a part of the other.

    Args:
        hits: (N, k) neighbors by the cosine of the small copies.
        read: gives image n at (48, 48, 3), None if it cannot be read any more.
    """
    usable = torch.tensor([not each.plain and min(each.width, each.height) >= SMALLEST for each in images])
    near = (hits.similarities[:, :LOOKED_AT] >= LOWEST) & (hits.rows[:, :LOOKED_AT] >= 0) & usable[:, None]
    rows, places = near.nonzero(as_tuple=True)
    others = hits.rows[rows, places]
    rows, others = rows[usable[others]], others[usable[others]]
    found: list[tuple[int, int]] = []
    if not len(rows):
        return found
    for a, b in zip(rows.split(_BLOCK), others.split(_BLOCK), strict=True):
        wholes, parts = (_stacked([images[n].small for n in each.tolist()]) for each in (a, b))
        cosine, place = align(wholes, parts, torch.zeros(len(a), 4), steps=5)
        alike = (cosine >= ALIKE).nonzero()[:, 0]
        for some in alike.split(_BLOCK_LARGE):
            found += _decided(a[some].tolist(), b[some].tolist(), place[some], read)
    return found


def _decided(
    a: list[int], b: list[int], place: Tensor, read: Callable[[int], NDArray[np.uint8] | None]
) -> list[tuple[int, int]]:
    seen = {n: read(n) for n in {*a, *b}}
    there = [n for n, (i, j) in enumerate(zip(a, b, strict=True)) if seen[i] is not None and seen[j] is not None]
    if not there:
        return []
    wholes, parts = (_stacked([seen[each[n]] for n in there]) for each in (a, b))
    cosine, place = align(wholes, parts, place[there], steps=4)
    is_part = (cosine >= CROP_COSINE) & _is_inside(place)
    return [(a[there[n]], b[there[n]]) for n in is_part.nonzero()[:, 0].tolist()]


def _stacked(pictures: Sequence[NDArray[np.uint8] | None]) -> Tensor:
    """(P, 3, S, S) real numbers."""
    return torch.from_numpy(np.stack([each for each in pictures if each is not None])).permute(0, 3, 1, 2).float()


def align(wholes: Tensor, parts: Tensor, place: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    """The best cosine of a part of each whole with the other picture, and where that part is.

    Args:
        wholes, parts: (P, 3, S, S).
        place: (P, 4) where to begin: scale in x less 1, shift in x, and both in y; the picture is from -1 to 1.
    """
    side = parts.shape[-1]
    grid = (torch.arange(side) + 0.5) * 2 / side - 1
    x, y = grid[None, :].expand(side, side), grid[:, None].expand(side, side)
    best, where = torch.full((len(wholes),), -1.0), place
    for step in range(steps + 1):
        at = torch.stack([_moved(x, place[:, 0], place[:, 1]), _moved(y, place[:, 2], place[:, 3])], -1)
        mask = (at.abs() <= 1).all(-1)[:, None].float()  # (P, 1, S, S)
        seen = _normalized(F.grid_sample(wholes, at, padding_mode="border", align_corners=False), mask)
        sought = _normalized(parts, mask)
        cosine = (seen * sought).flatten(1).sum(1)
        better = cosine > best
        best, where = torch.where(better, cosine, best), torch.where(better[:, None], place, where)
        if step == steps:
            break
        dx, dy = torch.zeros_like(seen), torch.zeros_like(seen)
        dx[..., 1:-1] = (seen[..., 2:] - seen[..., :-2]) * (side / 4)
        dy[..., 1:-1, :] = (seen[..., 2:, :] - seen[..., :-2, :]) * (side / 4)
        slopes = (torch.stack([dx * x, dx, dy * y, dy], -1) * mask[..., None]).flatten(1, 3)  # (P, 3 S², 4)
        missing = (sought - seen).flatten(1)[..., None]  # (P, 3 S², 1)
        curvature = slopes.transpose(1, 2) @ slopes + 1e-3 * torch.eye(4)
        place = (place + torch.linalg.solve(curvature, (slopes * missing).sum(1))).clamp(-LARGEST_CUT, LARGEST_CUT)
    return best, where


def _moved(grid: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return grid * (1 + scale[:, None, None]) + shift[:, None, None]


def _normalized(pictures: Tensor, mask: Tensor) -> Tensor:
    """Each channel minus its mean inside of the mask, and all of length 1: brightness and contrast do not count."""
    mean = (pictures * mask).sum((2, 3), keepdim=True) / mask.sum((2, 3), keepdim=True).clamp_min(1)
    return F.normalize(((pictures - mean) * mask).flatten(1), dim=1).view_as(pictures)


def _is_inside(place: Tensor) -> Tensor:
    """(P,) whether the part is inside of the whole, and not larger."""
    reach = [1 + place[:, n] + place[:, n + 1].abs() for n in (0, 2)]
    return (reach[0] <= 1 + _OUTSIDE) & (reach[1] <= 1 + _OUTSIDE)
