"""Colour operations on whole batches, each image by its own factor.

Images are (B, 3, H, W) in floating point, in [0, 1]; results too. Every function takes `out`, which may be the images
themselves, as torch's own functions do: a chain of them then runs in place.
"""

import torch
from torch import Tensor

from nearfar.views.arguments import check_float_images, per_sample

LUMA = (0.2989, 0.587, 0.114)  # ITU-R BT.601, as PIL and torchvision have it


def adjust_brightness(images: Tensor, factor: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """`clamp(factor · x)`: 0 is black, 1 the image itself.

    Args:
        images: (B, 3, H, W) in [0, 1].
        factor: (B,), or one number for all.
    """
    check_float_images(images)
    return torch.mul(images, per_sample("factor", factor, images), out=out).clamp_(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """`clamp(factor · x + (1 - factor) · mean gray of the image)`: 0 is flat gray, 1 the image itself.

    Args:
        images: (B, 3, H, W) in [0, 1].
        factor: (B,), or one number for all.
    """
    check_float_images(images)
    factor = per_sample("factor", factor, images)
    mean = images.mean((2, 3)) @ images.new_tensor(LUMA)  # (B,)
    return torch.mul(images, factor, out=out).add_(mean.view(-1, 1, 1, 1) * (1 - factor)).clamp_(0, 1)


def adjust_saturation(images: Tensor, factor: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """`clamp(factor · x + (1 - factor) · gray of the pixel)`: 0 is grayscale, 1 the image itself.

    Args:
        images: (B, 3, H, W) in [0, 1].
        factor: (B,), or one number for all.
    """
    check_float_images(images)
    factor = per_sample("factor", factor, images)
    rest = luma(images).mul_(1 - factor)  # (B, 1, H, W)
    return torch.mul(images, factor, out=out).add_(rest).clamp_(0, 1)


def adjust_hue(images: Tensor, shift: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Turn the colour circle by `shift` of a full turn, lightness and saturation kept.

    HSV and back in one: with hue h in sixths of a turn, each channel lies at `min + (max - min) · clamp(c(h), 0, 1)`,
    where c is `|h - 3| - 1` for red, `2 - |h - 2|` for green and `2 - |h - 4|` for blue.

    Args:
        images: (B, 3, H, W) in [0, 1].
        shift: (B,), or one number for all, in [-0.5, 0.5].
    """
    check_float_images(images)
    shift = per_sample("shift", shift, images)[:, 0]  # (B, 1, 1)
    red, green, blue = images.unbind(1)  # (B, H, W) each
    low, high = torch.minimum(red, green), torch.maximum(red, green)
    high_is_green = green > red
    low, high = torch.minimum(low, blue, out=low), torch.maximum(high, blue, out=high)
    chroma = high - low
    turn = torch.where(high_is_green, blue - red, green - blue)  # over chroma, from the sector's primary colour
    sector = high_is_green.to(images.dtype).mul_(2)
    high_is_blue = blue == high
    turn = torch.where(high_is_blue, red - green, turn)
    sector.masked_fill_(high_is_blue, 4)
    hue = turn.div_(chroma.clamp(min=1e-12)).add_(sector).add_(shift * 6)
    hue = hue.sub_((hue / 6).floor_().mul_(6))  # in [0, 6]

    out = torch.empty_like(images) if out is None else out
    for channel, (centre, sign, offset) in enumerate(((3, 1, -1), (2, -1, 2), (4, -1, 2))):
        part = (hue - centre).abs_().mul_(sign).add_(offset).clamp_(0, 1)
        torch.addcmul(low, part, chroma, out=out[:, channel])
    return out


def to_grayscale(images: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The luma of each pixel, in all three channels.

    Args:
        images: (B, 3, H, W) in [0, 1].
    """
    check_float_images(images)
    gray = luma(images).expand_as(images)
    return gray.contiguous() if out is None else out.copy_(gray)


def solarize(images: Tensor, threshold: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Invert what is at or above the threshold.

    Args:
        images: (B, 3, H, W) in [0, 1].
        threshold: (B,), or one number for all; above 1 nothing is inverted.
    """
    check_float_images(images)
    threshold = per_sample("threshold", threshold, images)
    return torch.where(images >= threshold, 1 - images, images, out=out)


def normalize(
    images: Tensor, mean: tuple[float, float, float], std: tuple[float, float, float], *, out: Tensor | None = None
) -> Tensor:
    """`(x - mean) / std`, channel by channel.

    Args:
        images: (B, 3, H, W) in [0, 1].
    """
    check_float_images(images)
    out = torch.empty_like(images) if out is None else out
    for channel, (m, s) in enumerate(zip(mean, std, strict=True)):
        torch.add(images.new_tensor(-m / s), images[:, channel], alpha=1 / s, out=out[:, channel])
    return out


def luma(images: Tensor) -> Tensor:
    """(B, 3, H, W) to (B, 1, H, W)."""
    red, green, blue = images.split(1, 1)
    gray: Tensor = red.mul(LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])
    return gray
