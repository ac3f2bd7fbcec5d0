"""Gaussian blur of a whole batch, each image by its own width."""

import functools

import torch
from torch import Tensor

from nearfar.views.arguments import check_float_images, per_sample
from nearfar.views.crop import apply_separable
from nearfar.views.scratch import Scratch, scratch_for


@torch.no_grad()
def gaussian_blur(
    images: Tensor,
    sigma: Tensor | float,
    radius: int,
    *,
    out: Tensor | None = None,
    scratch: Scratch | None = None,
) -> Tensor:
    """Blur with a Gaussian cut off at `radius`, edges mirrored: torchvision's, of kernel size 2·radius + 1.

    A blur of an axis is a banded matrix, so a batch is blurred by two batched matrix products.

    Args:
        images: (B, 3, H, W) in [0, 1].
        sigma: (B,), in pixels, or one number for all.
        radius: pixels to either side of the centre; at most the image's side less one counts.

    Returns:
        (B, 3, H, W).
    """
    check_float_images(images)
    if radius < 0:
        raise ValueError(f"radius is {radius}, expected at least 0")
    sigma = per_sample("sigma", sigma, images).view(-1, 1)  # (B, 1)
    rows = blur_matrix(sigma, images.shape[2], radius)
    columns = rows if images.shape[2] == images.shape[3] else blur_matrix(sigma, images.shape[3], radius)
    out = torch.empty_like(images, memory_format=torch.contiguous_format) if out is None else out
    return apply_separable(images, rows, columns, out=out, scratch=scratch or scratch_for(images))


def blur_matrix(sigma: Tensor, side: int, radius: int) -> Tensor:
    """(B, 1) widths to (B, side, side) matrices that blur one axis."""
    radius = min(radius, side - 1)
    offsets = torch.arange(radius + 1, device=sigma.device, dtype=sigma.dtype)
    kernel = (offsets / sigma).square_().mul_(-0.5).exp_()  # (B, radius + 1), one half and the centre
    kernel /= 2 * kernel.sum(1, keepdim=True) - kernel[:, :1]
    return (kernel @ _mirrored_shifts(side, radius, sigma.device, sigma.dtype)).view(-1, side, side)


@functools.lru_cache(maxsize=32)
def _mirrored_shifts(side: int, radius: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(radius + 1, side²): entry t is the matrix that adds the neighbours at distance t, mirrored at the edges."""
    shifts = torch.zeros(radius + 1, side, side)
    position = torch.arange(side)
    for offset in range(-radius, radius + 1):
        neighbour = (position + offset).abs()
        neighbour = (side - 1) - (side - 1 - neighbour).abs()
        shifts[abs(offset), position, neighbour] += 1
    return shifts.view(radius + 1, -1).to(device, dtype)
