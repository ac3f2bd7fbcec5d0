"""Gaussian blur of a whole batch, each image by its own width."""

import functools

import torch
from torch import Tensor

from nearfar.modalities.image.views.arguments import check_float_images, per_sample
from nearfar.modalities.image.views.separable import resample
from nearfar.nn.scratch import Scratch, scratch_for


def gaussian_blur(
    images: Tensor,
    sigma: Tensor | float,
    radius: int,
    *,
    out: Tensor | None = None,
    scratch: Scratch | None = None,
) -> Tensor:
    """Blur with a Gaussian cut off at `radius`, edges mirrored: torchvision's, of kernel size 2·radius + 1.

    A Gaussian is separable, so a batch is blurred by one resampling of either axis.

    Args:
        images: (B, 3, H, W) in [0, 1].
        sigma: (B,), in pixels, or one number for all.
        radius: pixels to either side of the centre; less than the image's sides.

    Returns:
        (B, 3, H, W).
    """
    check_float_images(images)
    side = min(images.shape[2:])
    if not 0 <= radius < side:
        raise ValueError(f"radius is {radius}, expected 0 to {side - 1} for images of {tuple(images.shape[2:])} pixels")
    sigma = per_sample("sigma", sigma, images).view(-1, 1)  # (B, 1)
    out = torch.empty_like(images, memory_format=torch.contiguous_format) if out is None else out
    return blur_by(images, half_kernel(sigma, radius), out=out, scratch=scratch or scratch_for(images))


def blur_by(images: Tensor, kernel: Tensor, of: Tensor | None = None, *, out: Tensor, scratch: Scratch) -> Tensor:
    """Blur all images, or those that `of` names, by (B, radius + 1) weights, from the centre outwards."""
    (h, w), radius = images.shape[2:], kernel.shape[1] - 1
    distance = torch.arange(-radius, radius + 1, device=kernel.device).abs_()
    index = _neighbors(h, radius, images.device).expand(len(kernel), h, -1)
    weight = kernel[:, distance][:, None].expand_as(index)
    return resample(images, index, weight, blur_matrix(kernel, w, scratch), of, out=out)


def half_kernel(sigma: Tensor, radius: int) -> Tensor:
    """(B, 1) deviations to (B, radius + 1) weights, from the centre outwards."""
    offsets = torch.arange(radius + 1, device=sigma.device, dtype=sigma.dtype)
    kernel = (offsets / sigma).square_().mul_(-0.5).exp_()
    return kernel.div_(2 * kernel.sum(1, keepdim=True) - 1)  # the centre, which is 1, counts once


def blur_matrix(kernel: Tensor, side: int, scratch: Scratch) -> Tensor:
    """(B, radius + 1) weights to the (B, side, side) matrices that blur one axis."""
    matrix = scratch.take("blur", (len(kernel), side * side), kernel)
    shifts = _mirrored_shifts(side, kernel.shape[1] - 1, kernel.device, kernel.dtype)
    return torch.mm(kernel, shifts, out=matrix).view(-1, side, side)


@functools.lru_cache(maxsize=32)
def _neighbors(side: int, radius: int, device: torch.device) -> Tensor:
    """(side, 2 · radius + 1): the pixels from `radius` before to `radius` after each, mirrored at the edges."""
    pixel = torch.arange(side)[:, None] + torch.arange(-radius, radius + 1)
    return ((side - 1) - (side - 1 - pixel.abs()).abs()).to(device)


@functools.lru_cache(maxsize=32)
def _mirrored_shifts(side: int, radius: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(radius + 1, side²): entry t is the matrix that adds the neighbours at distance t, mirrored at the edges."""
    shifts = torch.zeros(radius + 1, side, side)
    neighbors = _neighbors(side, radius, torch.device("cpu"))
    for column, offset in enumerate(range(-radius, radius + 1)):
        shifts[abs(offset), torch.arange(side), neighbors[:, column]] += 1
    return shifts.view(radius + 1, -1).to(device, dtype)
