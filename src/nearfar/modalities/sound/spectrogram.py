"""What is done to log-mel spectrograms (B, mels, frames): whole batches, each by its own numbers."""

import torch
from torch import Tensor

_CUBIC = -0.75  # of the bicubic kernel, as torch's and most others have it


def log_mixup_exp(x: Tensor, other: Tensor, ratio: Tensor) -> Tensor:
    """Another sound in the background: log((1 - ratio) exp(x) + ratio exp(other)), where energies add up.

    Args:
        x, other: (B, M, T) logarithms.
        ratio: (B,) from 0 to below 1.

    Reference: Niizumi et al. 2021, eq. 1, https://arxiv.org/abs/2103.06695
    """
    ratio = ratio.to(x.device, x.dtype)[:, None, None]
    return torch.logaddexp(x + torch.log1p(-ratio), other + torch.log(ratio))


def resize_crop(x: Tensor, boxes: Tensor, span: float = 1.5) -> Tensor:
    """Each spectrogram's box, resized bicubically to the whole: pitch and tempo a little different.

    The box lies on a canvas `span` times as long as the spectrogram, which is in its middle, with zeros before and
    after; so a box may reach beyond the sound.

    Args:
        x: (B, M, T).
        boxes: (B, 4) integers on the canvas: first band, first frame, bands, frames.

    Reference: Niizumi et al. 2021, section III-B.3, https://arxiv.org/abs/2103.06695
    """
    bands, frames = x.shape[1:]
    boxes = boxes.to(x.device)
    rows = _resizing(boxes[:, 0], boxes[:, 2], bands, bands, 0).to(x.dtype)  # (B, M, M)
    before = (int(frames * span) - frames) // 2
    columns = _resizing(boxes[:, 1], boxes[:, 3], frames, frames, before).to(x.dtype)  # (B, T, T)
    return rows @ x @ columns.transpose(1, 2)


def _resizing(begin: Tensor, extent: Tensor, size: int, there: int, before: int) -> Tensor:
    """(B, size, there): how much of each of `there` places, the first at `before`, is in each place of the result."""
    steps = torch.arange(size, device=begin.device, dtype=torch.float64)
    place = steps * ((extent - 1).double() / max(size - 1, 1))[:, None]  # from 0 to extent - 1: corners stay corners
    whole = place.floor()
    weights = place.new_zeros(len(begin), size, there + 1)  # the last for what lies outside
    for k in (-1, 0, 1, 2):
        distance = (place - whole - k).abs()
        near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
        far = ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
        tap = torch.where(distance <= 1, near, far)
        index = (whole + k).long().clamp(min=0)
        index = torch.minimum(index, (extent - 1)[:, None]) + begin[:, None] - before
        outside = (index < 0) | (index >= there)
        weights.scatter_add_(2, index.masked_fill(outside, there)[..., None], tap[..., None])
    return weights[:, :, :there]


def stretch(x: Tensor, begin: Tensor, extent: Tensor, frames: int) -> Tensor:
    """A part of each spectrogram, stretched or pressed to one length in time.

    A frame of the result is the mean of those around its middle, weighted by a triangle that reaches to the middle of
    the next on both sides, or to the next frame of the spectrogram if that is farther.

    Args:
        x: (B, M, T).
        begin, extent: (B,) floating point, first frame and frames of the part, within the spectrogram.
        frames: of the result.

    Returns:
        (B, M, frames); the values of x if the part is all of it and as long.
    """
    begin, extent = (each.to(x.device, torch.float32)[:, None] for each in (begin, extent))  # (B, 1)
    step = extent / frames
    middle = begin + (torch.arange(frames, device=x.device) + 0.5) * step - 0.5  # (B, frames)
    middle = middle.maximum(begin).minimum(begin + extent - 1)
    distance = (torch.arange(x.shape[2], device=x.device) - middle[..., None]).abs()  # (B, frames, T)
    weights = (1 - distance / step.clamp(min=1.0)[..., None]).clamp(min=0)
    inside = torch.arange(x.shape[2], device=x.device) < (begin + extent)[..., None]
    weights = weights * inside
    return x @ (weights / weights.sum(2, keepdim=True)).to(x.dtype).transpose(1, 2)


def draw_boxes(
    count: int,
    bands: int,
    frames: int,
    generator: torch.Generator,
    *,
    lengths: tuple[float, float] = (0.6, 1.5),
    heights: tuple[float, float] | None = None,
    span: float = 1.5,
) -> Tensor:
    """(B, 4) boxes for `resize_crop`: lengths and heights uniform, at most the canvas, places uniform.

    Args:
        lengths: of the whole, from and to.
        heights: the same; None: as the lengths.
    """
    u = torch.rand(4, count, generator=generator, dtype=torch.float64)
    sides = []
    for number, (size, canvas, (low, high)) in enumerate(
        ((bands, bands, heights or lengths), (frames, int(frames * span), lengths))
    ):
        extent = ((low + (high - low) * u[number]) * size).long().clamp(1, canvas)
        sides.append((extent, (u[2 + number] * (canvas - extent + 1)).long()))
    (height, top), (width, left) = sides
    return torch.stack([top, left, height, width], 1)


def mask(x: Tensor, begin: Tensor, extent: Tensor, *, dim: int, value: float = 0.0) -> Tensor:
    """A stripe of each spectrogram as if nothing were there.

    Args:
        x: (B, M, T).
        begin, extent: (B,) integers, of the bands where `dim` is 1, of the frames where it is 2.
        value: of the stripe; 0 is the mean of a normalised spectrogram.

    Reference: Park et al. 2019 (SpecAugment), https://arxiv.org/abs/1904.08779
    """
    place = torch.arange(x.shape[dim], device=x.device)
    begin, extent = begin.to(x.device)[:, None], extent.to(x.device)[:, None]
    stripe = (place >= begin) & (place < begin + extent)  # (B, M) or (B, T)
    return x.masked_fill(stripe.unsqueeze(3 - dim), value)
