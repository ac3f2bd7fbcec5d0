"""Turn, zoom, stretch, shear and shift a whole batch, each image by its own matrix."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.modalities.image.views.arguments import check_float_images


def affine_matrix(turn: Tensor, zoom: Tensor, stretch: Tensor, shear: Tensor, shift: Tensor) -> Tensor:
    """Where each pixel of the result looks, as [A | t] of `affine`.

    A = R(turn) · [[√stretch / zoom, shear], [0, 1 / (√stretch · zoom)]].

    Args:
        turn: (B,) in degrees.
        zoom: (B,) above 1 magnifies.
        stretch: (B,) above 1 makes things narrower, in proportion of width to height.
        shear: (B,) pixels aside for each pixel down, before the turn.
        shift: (2, B) how far to the right and down it looks, as a part of the side.

    Returns:
        (B, 2, 3).
    """
    angle, root, nothing = turn * (math.pi / 180), stretch.sqrt(), torch.zeros_like(turn)
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    upright = torch.stack([root / zoom, shear, nothing, 1 / (root * zoom)], 1).view(-1, 2, 2)
    return torch.cat([rotation @ upright, 2 * shift.t()[:, :, None]], 2)


def affine(images: Tensor, matrix: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each pixel of the result is the image at another place, bilinear; beyond its edge an image goes on as it ends.

    The pixel at p looks at A p + t, with x before y and the image from -1 to 1 either way.

    Args:
        images: (B, 3, H, W) in [0, 1].
        matrix: (B, 2, 3), [A | t].
        out: may be the images.
    """
    check_float_images(images)
    if matrix.shape != (len(images), 2, 3):
        raise ValueError(f"matrix has shape {tuple(matrix.shape)}, expected ({len(images)}, 2, 3): one for each image")
    grid = F.affine_grid(matrix.to(images), list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return moved if out is None else out.copy_(moved)
