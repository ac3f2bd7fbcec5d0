"""Random views for encoders that prepare their own input: bytes in, bytes out."""

from dataclasses import replace

import torch
from torch import Tensor

from nearfar.modalities.image.views.view import ImageView


def crop_and_flip(size: int) -> ImageView:
    """A crop of at least a quarter of the image, turned over in half the cases."""
    return ImageView(size=size, crop_scale=(0.25, 1.0), jitter=0.0, grayscale=0.0, blur=0.0)


def augment(images: Tensor, view: ImageView, generator: torch.Generator) -> Tensor:
    """(B, 3, S, S) uint8 to a view of each, uint8 again, so that any encoder's preparation can follow."""
    values = replace(view, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))(images, generator)  # in [0, 1]
    return values.mul_(255).round_().clamp_(0, 255).to(torch.uint8)
