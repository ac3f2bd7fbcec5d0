"""What the views ask of their arguments, and the words they use when they do not get it."""

import torch
from torch import Tensor


def check_images(images: Tensor) -> None:
    """(B, 3, H, W), uint8 or floating point."""
    if not isinstance(images, Tensor):
        raise TypeError(f"images is a {type(images).__name__}, expected a torch.Tensor of shape (B, 3, H, W)")
    if images.ndim != 4:
        way_out = "; add the batch with images[None]" if images.ndim == 3 else ""
        raise ValueError(f"images has shape {tuple(images.shape)}, expected (B, 3, H, W){way_out}")
    if images.shape[1] != 3:
        way_out = "; expand gray with images.expand(-1, 3, -1, -1)" if images.shape[1] == 1 else ""
        way_out = "; move the channels with images.permute(0, 3, 1, 2)" if images.shape[-1] == 3 else way_out
        raise ValueError(
            f"images has shape {tuple(images.shape)}: {images.shape[1]} channels, expected (B, 3, H, W){way_out}"
        )
    if images.shape[2] == 0 or images.shape[3] == 0:
        raise ValueError(f"images has shape {tuple(images.shape)}, expected at least one pixel")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise TypeError(f"images has type {images.dtype}, expected uint8 in [0, 255] or floating point in [0, 1]")


def check_float_images(images: Tensor) -> None:
    """(B, 3, H, W) in floating point, as the colour operations take them."""
    if images.dtype == torch.float32 and images.ndim == 4 and images.shape[1] == 3 and images.numel() > 0:
        return  # the usual, at little cost
    check_images(images)
    if not images.is_floating_point():
        raise TypeError(f"images has type {images.dtype}, expected floating point in [0, 1]; convert by images / 255")


def per_sample(name: str, values: Tensor | float, images: Tensor) -> Tensor:
    """`values` as (B, 1, 1, 1) of the images' type and device; one number serves every sample."""
    if isinstance(values, Tensor) and values.shape == (len(images), 1, 1, 1):
        return values
    values = torch.as_tensor(values, dtype=images.dtype).to(images.device)
    if values.ndim == 0:
        values = values.expand(len(images))
    if values.shape != (len(images),):
        raise ValueError(f"{name} has shape {tuple(values.shape)}, expected ({len(images)},): one for each image")
    return values.view(-1, 1, 1, 1)


def check_size(size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"size is {size!r}, expected a whole number of pixels, at least 1")
