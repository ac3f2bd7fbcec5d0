"""Colour operations on whole batches, each image by its own factor.

Images are (B, 3, H, W) in floating point, in [0, 1]; results too. Factors, shifts (in turns) and thresholds are (B,) or
one number for all. Every function takes `out`, which may be the images themselves, as torch's own functions do: a chain
of them then runs in place. No gradient passes through them.
"""

import functools
import math

import torch
from torch import Tensor

from nearfar.modalities.image.views.arguments import check_float_images, per_sample
from nearfar.nn.arguments import cached_tensor
from nearfar.nn.scratch import Scratch, scratch_for

LUMA = (0.2989, 0.587, 0.114)  # ITU-R BT.601, as PIL and torchvision have it
LEAST_DEVIATION = 0.02


def adjust_brightness(images: Tensor, factor: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """`clamp(factor · x)`: 0 is black, 1 the image itself."""
    check_float_images(images)
    return torch.mul(images, per_sample("factor", factor, images), out=out).clamp_(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """`clamp(factor · x + (1 - factor) · mean gray of the image)`: 0 is flat gray, 1 the image itself."""
    check_float_images(images)
    factor = per_sample("factor", factor, images)
    b, _, h, w = images.shape
    mean = torch.mv(images.reshape(b, 3 * h * w), _luma_of_mean(h * w, images.dtype, images.device)).view(b, 1, 1, 1)
    return torch.mul(images, factor, out=out).add_(torch.addcmul(mean, mean, factor, value=-1)).clamp_(0, 1)


def adjust_saturation(
    images: Tensor, factor: Tensor | float, *, out: Tensor | None = None, scratch: Scratch | None = None
) -> Tensor:
    """`clamp(factor · x + (1 - factor) · gray of the pixel)`: 0 is grayscale, 1 the image itself."""
    check_float_images(images)
    factor = per_sample("factor", factor, images)
    gray = luma(images, scratch or scratch_for(images))  # (B, 1, H, W)
    return torch.lerp(gray, images, factor, out=out).clamp_(0, 1)


def adjust_hue(
    images: Tensor, shift: Tensor | float, *, out: Tensor | None = None, scratch: Scratch | None = None
) -> Tensor:
    """Turn the colour circle by `shift` of a full turn, HSV's value and saturation kept.

    HSV and back in one, without a branch. With m and M the smallest and largest channel and d = M - m, the hue in
    turns from cyan is `u = ±(1/3 - (G + B - R - m) / 6d)`, negative where G > B. With u turned and wrapped into
    [-1/2, 1/2], red is `m - d + 6d · clamp(|u|, 1/6, 1/3)`, green `M + d - 6d · clamp(|u + 1/6|, 1/6, 1/3)`, and blue
    the same with u - 1/6.
    """
    check_float_images(images)
    scratch = scratch or scratch_for(images)
    # Half a turn, so that cyan lies in the middle of [0, 1), and a whole one, so that frac never sees a negative.
    turns = per_sample("shift", shift, images)[:, 0] + 1.5  # (B, 1, 1)
    red, green, blue = images.unbind(1)  # (B, H, W) each
    low, high, chroma, u = scratch.take("planes", (4, *red.shape), images)
    torch.minimum(torch.minimum(green, blue, out=low), red, out=low)
    torch.maximum(torch.maximum(green, blue, out=high), red, out=high)
    torch.sub(high, low, out=chroma).clamp_(min=1e-12)
    torch.add(green, blue, out=u).sub_(red).sub_(low)
    torch.addcdiv(cached_tensor(1 / 3, images.dtype, images.device), u, chroma, value=-1 / 6, out=u)
    out = torch.empty_like(images) if out is None else out
    u.copysign_(torch.sub(blue, green, out=out[:, 0])).add_(turns).frac_()  # here the images have served

    opposite = cached_tensor((1 / 2, 1 / 3, 2 / 3), images.dtype, images.device).view(3, 1, 1)
    torch.sub(u[:, None], opposite, out=out).abs_().clamp_(1 / 6, 1 / 3)
    torch.addcmul(low.sub_(chroma), out[:, 0], chroma, value=6, out=out[:, 0])
    torch.addcmul(high.add_(chroma)[:, None], out[:, 1:], chroma[:, None], value=-6, out=out[:, 1:])
    return out


def to_grayscale(images: Tensor, *, out: Tensor | None = None, scratch: Scratch | None = None) -> Tensor:
    """The luma of each pixel, in all three channels."""
    check_float_images(images)
    gray = luma(images, scratch or scratch_for(images)).expand_as(images)
    return gray.contiguous() if out is None else out.copy_(gray)


def solarize(images: Tensor, threshold: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Invert what is at or above the threshold; above 1 nothing is."""
    check_float_images(images)
    threshold = per_sample("threshold", threshold, images)
    above = torch.ge(images, threshold, out=torch.empty_like(images))  # 0 or 1: torch.where is far slower
    return torch.addcmul(images, 1 - 2 * images, above, out=out)


def normalize(
    images: Tensor, mean: tuple[float, float, float], std: tuple[float, float, float], *, out: Tensor | None = None
) -> Tensor:
    """`(x - mean) / std`, channel by channel."""
    check_float_images(images)
    out = torch.empty_like(images) if out is None else out
    for x, y, m, s in zip(images.unbind(1), out.unbind(1), mean, std, strict=True):
        torch.add(cached_tensor(-m / s, images.dtype, images.device), x, alpha=1 / s, out=y)
    return out


def standardize(images: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`(x - mean) / (deviation + 0.02)` with the image's own mean and deviation, over all its pixels and channels.

    What is left does not know how bright the image is, nor how strong its contrast. The 0.02, some 5 of 255, keeps the
    grain of an empty image from becoming a picture.
    """
    check_float_images(images)
    mean = images.flatten(1).mean(1).view(-1, 1, 1, 1)
    centred = torch.sub(images, mean, out=out)
    deviation = torch.linalg.vector_norm(centred, dim=(1, 2, 3), keepdim=True) / math.sqrt(images[0].numel())
    return centred.div_(deviation + LEAST_DEVIATION)


def luma(images: Tensor, scratch: Scratch) -> Tensor:
    """(B, 3, H, W) to (B, 1, H, W)."""
    b, _, h, w = images.shape
    gray = scratch.take("gray", (b, 1, h * w), images)
    weights = cached_tensor(LUMA, images.dtype, images.device).expand(b, 1, 3)
    torch.bmm(weights, images.reshape(b, 3, h * w), out=gray)
    return gray.view(b, 1, h, w)


@functools.lru_cache(maxsize=32)
def _luma_of_mean(pixels: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(3 · pixels,): by how much each value of an image counts in its mean luma."""
    return (cached_tensor(LUMA, dtype, device) / pixels).repeat_interleave(pixels)
