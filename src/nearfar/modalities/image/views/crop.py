"""Crop, resize and flip a whole batch, each image by its own box.

An antialiased resize is separable: each output row is a weighted mean of a few input rows, each output column of a few
input columns. So a crop, its resize and its flip are one resampling of either axis.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nearfar.modalities.image.views.arguments import check_images, check_size
from nearfar.modalities.image.views.separable import resample
from nearfar.nn.scratch import Scratch, scratch_for

Interpolation = Literal["bilinear", "bicubic"]
ATTEMPTS = 10
_FLOAT = torch.empty(0)
SOURCE_VALUES = 450_000  # floats of a chunk of inputs on the CPU: they fit into a core's cache


def random_crop_boxes(
    count: int,
    height: int,
    width: int,
    generator: torch.Generator,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Boxes of random area and aspect, as the Inception crop draws them.

    The area is uniform in `scale` times the image's, the logarithm of the aspect uniform in that of `ratio`, the
    place uniform over the whole pixels where the box fits. The first of ten draws that fits inside is taken, else the
    largest central box of an allowed aspect: the distribution of torchvision's RandomResizedCrop, for all samples at
    once.

    Args:
        count: number of boxes, B.
        height, width: of the images.
        generator: the only source of randomness.

    Returns:
        (B, 4) integers on the generator's device: top, left, height, width.

    Reference: Szegedy et al. 2015, section 6, https://arxiv.org/abs/1409.4842
    """
    draws = torch.rand(2, ATTEMPTS, count, generator=generator, device=generator.device, dtype=torch.float64)
    places = torch.rand(2, count, generator=generator, device=generator.device, dtype=torch.float64)
    area = (scale[0] + (scale[1] - scale[0]) * draws[0]) * (height * width)  # (10, B)
    aspect = (math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * draws[1]).exp()
    heights = (area / aspect).sqrt().round().long()
    widths = (area * aspect).sqrt().round().long()
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)

    first = fits.int().argmax(0, keepdim=True)  # (1, B)
    any_fits = fits.any(0)
    fallback_height, fallback_width = _central_box(height, width, ratio)
    box_height = torch.where(any_fits, heights.gather(0, first)[0], fallback_height)  # (B,)
    box_width = torch.where(any_fits, widths.gather(0, first)[0], fallback_width)
    free_height, free_width = height - box_height, width - box_width
    top = torch.where(any_fits, (places[0] * (free_height + 1)).long(), free_height // 2)
    left = torch.where(any_fits, (places[1] * (free_width + 1)).long(), free_width // 2)
    return torch.stack([top, left, box_height, box_width], 1)


def _central_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """Height and width of the largest box of an allowed aspect."""
    if width / height < ratio[0]:
        return max(1, min(height, round(width / ratio[0]))), width
    if width / height > ratio[1]:
        return height, max(1, min(width, round(height * ratio[1])))
    return height, width


def _cubic(x: Tensor) -> Tensor:
    """Keys' cubic convolution at distances x of at least 0, with a = -1/2, as Pillow and torch have it.

    >>> _cubic(torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0]))
    tensor([ 1.0000,  0.5625,  0.0000, -0.0625,  0.0000,  0.0000])
    """
    near = (1.5 * x - 2.5) * x * x + 1
    x = x.clamp(max=2)
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, far)


@torch.no_grad()
def crop_resize(
    images: Tensor,
    boxes: Tensor,
    size: int,
    flip: Tensor | None = None,
    *,
    interpolation: Interpolation = "bilinear",
) -> Tensor:
    """Each image's box, resized to a square with an antialiasing filter, mirrored where `flip` says so.

    Equal to torchvision's `resized_crop(antialias=True)` in floating point: pixels outside the box never enter.

    Args:
        images: (B, 3, H, W), uint8 or floating point in [0, 1].
        boxes: (B, 4): top, left, height, width, inside the image.
        size: pixels of a side of the result.
        flip: (B,) booleans; True mirrors left and right.
        interpolation: "bilinear", a triangle filter, or "bicubic", whose values are clamped to [0, 1].

    Returns:
        (B, 3, size, size), float32 in [0, 1].
    """
    check_images(images)
    check_size(size)
    if boxes.shape != (len(images), 4):
        raise ValueError(f"boxes has shape {tuple(boxes.shape)}, expected ({len(images)}, 4): top, left, height, width")
    if flip is not None and flip.shape != (len(images),):
        raise ValueError(f"flip has shape {tuple(flip.shape)}, expected ({len(images)},): one for each image")
    out = torch.empty(len(images), 3, size, size, device=images.device)
    crops, scratch = Crops.of(images, boxes, size, flip, interpolation=interpolation), scratch_for(images)
    for first, source in sources(images, size, scratch):
        last = first + len(source)
        crops.cut(source, first, last, out=out[first:last], scratch=scratch)
    return out if interpolation == "bilinear" else out.clamp_(0, 1)


def chunks(images: Tensor, values: int, most: int) -> list[tuple[int, int]]:
    """Where to cut a batch: on the CPU into even chunks of at most `most` values, else not at all.

    Args:
        values: of one sample; at least one sample is a chunk.

    >>> chunks(torch.zeros(10, 3, 2, 2), values=12, most=50)
    [(0, 4), (4, 7), (7, 10)]
    """
    count = len(images)
    pieces = -(-count // max(1, most // values)) if images.device.type == "cpu" else min(1, count)
    ends = [-(-count * piece // pieces) for piece in range(pieces + 1)] if pieces else []
    return list(itertools.pairwise(ends))


def sources(images: Tensor, size: int, scratch: Scratch) -> Iterator[tuple[int, Tensor]]:
    """A few images at a time, as (the first's number, floats): made float32 once, for crops of up to `size` pixels."""
    for first, last in chunks(images, 3 * max(images.shape[2] * images.shape[3], size**2), SOURCE_VALUES):
        source = images[first:last]
        if source.dtype != torch.float32:
            kept = scratch.take("source", tuple(source.shape), _FLOAT.to(images.device))
            source = kept.copy_(source)
        yield first, source


@dataclass(frozen=True)
class Crops:
    """Which input pixels make each output pixel of B crops; made once for the batch, applied chunk by chunk.

    The two axes, rows and columns, are stacked. The filter is a triangle, to either side as wide as an output pixel
    where that is wider than an input pixel, else as an input pixel; or a cubic, twice as wide. It is cut off at the
    box's ends. So at most `taps` input pixels count, which lie side by side.
    """

    index: Tensor  # (2, B, size, taps), in [0, H) and [0, W)
    weight: Tensor  # (2, B, size, taps)

    @classmethod
    def of(
        cls,
        images: Tensor,
        boxes: Tensor,
        size: int,
        flip: Tensor | None,
        gain: Tensor | float = 1.0,
        *,
        interpolation: Interpolation = "bilinear",
    ) -> "Crops":
        """Crops of these boxes, each multiplied by its `gain`: (B,), or one number for all."""
        device, sides = images.device, torch.tensor(images.shape[2:], device=images.device).view(2, 1, 1)
        begin, extent = boxes.to(device).t().float().view(2, 2, -1, 1)  # (2, B, 1) each
        step = extent / size  # input pixels per output pixel
        reach = step.clamp(min=1)
        origin = begin.clone()
        signed = step.clone()
        if flip is not None:  # columns run from the box's other end
            origin[1] += extent[1] * flip.to(device)[:, None]
            signed[1] *= 1 - 2 * flip.to(device).float()[:, None]
        output = torch.arange(size, device=device) + 0.5
        centre = output * signed + (origin - 0.5)  # (2, B, size), where pixel j is at j
        support = 1 if interpolation == "bilinear" else 2
        taps = math.ceil(2 * support * max(1.0, max(images.shape[2:]) / size))
        # With the taps outermost, these are few passes over long rows.
        pixel = (centre - support * reach).floor_() + torch.arange(1, taps + 1, device=device).view(-1, 1, 1, 1)
        distance = (pixel - centre).abs_().div_(reach)
        inside = torch.minimum(pixel - (begin - 1), (begin + extent) - pixel)  # at least 1 in the box, else at most 0
        if interpolation == "bilinear":
            weight = torch.minimum(1 - distance, inside).clamp_(min=0)
        else:
            weight = _cubic(distance).mul_(inside > 0)
        scale = torch.as_tensor(gain, device=device) / (255 if images.dtype == torch.uint8 else 1)
        total = weight.sum(0)
        total[0] /= scale.view(-1, 1)
        weight /= total
        index = torch.minimum(pixel.clamp_(min=0), sides - 1)  # what lies outside has no weight
        return cls(*(x.permute(1, 2, 3, 0).contiguous() for x in (index.long(), weight)))

    def cut(self, source: Tensor, first: int, last: int, *, out: Tensor, scratch: Scratch) -> Tensor:
        """The crops first to last, whose images are the `source`, in float32."""
        index, weight = self.index[:, first:last], self.weight[:, first:last]
        columns = scratch.take("columns", (len(source), index.shape[2], source.shape[3]), out).zero_()
        columns.scatter_add_(-1, index[1], weight[1])
        return resample(source, index[0], weight[0], columns, out=out)
