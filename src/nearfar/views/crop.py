"""Crop, resize and flip a whole batch, each image by its own box.

An antialiased resize is separable: each output row is a weighted mean of input rows, each output column of input
columns. So a crop, its resize and its flip are two small matrices per image and two batched matrix products.
"""

import math

import torch
from torch import Tensor

from nearfar.views.arguments import check_images, check_size

ATTEMPTS = 10


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


def crop_resize(images: Tensor, boxes: Tensor, size: int, flip: Tensor | None = None) -> Tensor:
    """Each image's box, resized to a square with an antialiasing triangle filter, mirrored where `flip` says so.

    Equal to torchvision's `resized_crop(antialias=True)` in floating point: pixels outside the box never enter.

    Args:
        images: (B, 3, H, W), uint8 or floating point in [0, 1].
        boxes: (B, 4): top, left, height, width, inside the image.
        size: pixels of a side of the result.
        flip: (B,) booleans; True mirrors left and right.

    Returns:
        (B, 3, size, size), float32 in [0, 1].
    """
    check_images(images)
    check_size(size)
    check_boxes(boxes, images)
    boxes = boxes.to(images.device)
    top, left, height, width = boxes.unbind(1)
    rows = resize_matrix(top, height, images.shape[2], size)  # (B, size, H)
    columns = resize_matrix(left, width, images.shape[3], size, flip=flip)  # (B, size, W)
    if images.dtype == torch.uint8:
        rows /= 255
    return apply_separable(images.float(), rows, columns)


def check_boxes(boxes: Tensor, images: Tensor) -> None:
    if boxes.shape != (len(images), 4):
        raise ValueError(f"boxes has shape {tuple(boxes.shape)}, expected ({len(images)}, 4): top, left, height, width")


def resize_matrix(start: Tensor, length: Tensor, source: int, size: int, *, flip: Tensor | None = None) -> Tensor:
    """The weights by which `size` output pixels average the `source` input pixels of one axis.

    A triangle filter, as wide as an output pixel where that is wider than an input pixel, cut off at the interval's
    ends and scaled to sum to one.

    Args:
        start, length: (B,), the interval taken from the axis.
        flip: (B,) booleans; True reverses the output.

    Returns:
        (B, size, source), float32; each row sums to one.
    """
    device = start.device
    begin, extent = start.float().view(-1, 1, 1), length.float().view(-1, 1, 1)
    step = extent / size  # input pixels per output pixel, (B, 1, 1)
    output = torch.arange(size, device=device, dtype=torch.float32).add_(0.5).view(1, -1, 1)
    if flip is not None:
        output = torch.where(flip.to(device).view(-1, 1, 1), size - output, output)
    centre = output * step  # from the interval's start, (B, size, 1)
    sharpness = 1 / step.clamp(min=1)
    pixel = torch.arange(source, device=device, dtype=torch.float32).add_(0.5) - begin  # (B, 1, source)
    inside = (pixel > 0) & (pixel < extent)
    weights = (pixel * sharpness - centre * sharpness).abs_().neg_().add_(1).clamp_(min=0).mul_(inside)
    return weights.div_(weights.sum(-1, keepdim=True))


def apply_separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`rows @ image @ columnsᵀ` for every channel.

    Args:
        images: (B, C, H, W).
        rows: (B, P, H).
        columns: (B, Q, W).

    Returns:
        (B, C, P, Q).
    """
    b, c, h, w = images.shape
    narrowed = torch.bmm(images.reshape(b, c * h, w), columns.transpose(1, 2)).view(
        b, c, h, columns.shape[1]
    )  # (B, C, H, Q)
    return torch.matmul(rows[:, None], narrowed)
