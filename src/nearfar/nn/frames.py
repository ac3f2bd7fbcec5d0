"""Frames of padded sequences: which of them are there, and what they are together."""

from typing import Literal

import torch
from torch import Tensor

Pooling = Literal["mean", "max", "both"]


def pool_frames(frames: Tensor, present: Tensor, pooling: Pooling) -> Tensor:
    """(B, L, D) to (B, D), or (B, 2 D) for "both": mean or maximum over the frames that are not padding."""
    mask = present.unsqueeze(-1)
    mean = (frames * mask).sum(1) / mask.sum(1)
    if pooling == "mean":
        return mean
    largest = frames.masked_fill(~mask, -torch.inf).amax(1)
    return largest if pooling == "max" else torch.cat([mean, largest], 1)


def pooled_dim(features: int, pooling: Pooling) -> int:
    return 2 * features if pooling == "both" else features


def sequence_lengths(x: Tensor) -> Tensor:
    """(B, C, T) to (B,): the length of each sequence, up to its last step with a value.

    >>> sequence_lengths(torch.tensor([[[1.0, 2.0, 3.0]], [[1.0, torch.nan, torch.nan]]]))
    tensor([3, 1])
    """
    steps = torch.arange(1, x.shape[-1] + 1, device=x.device)
    return (steps * ~x.isnan().all(1)).amax(1)


def zero_missing(x: Tensor, hop: int) -> tuple[Tensor, Tensor | None]:
    """The sequences with 0 for NaN, and (B,) their lengths; None if all are known to have the full length."""
    if x.ndim != 3 or not x.is_floating_point():
        raise ValueError(f"sequences are {x.dtype} of shape {tuple(x.shape)}, expected floating point (B, C, T)")
    if x.shape[-1] < hop:
        raise ValueError(f"sequences have {x.shape[-1]} steps, expected at least {hop}, the encoder's steps per frame")
    missing = x.isnan()
    if x.device.type == "cpu" and not bool(missing.any()):  # elsewhere to know would be to wait
        return x, None
    return x.masked_fill(missing, 0.0), sequence_lengths(x)


def frame_mask(x: Tensor, ends: Tensor | None) -> Tensor:
    """(B, L), of (B, D, L)."""
    if ends is None:
        return x.new_ones(len(x), x.shape[-1], dtype=torch.bool)
    return torch.arange(x.shape[-1], device=x.device) < ends.unsqueeze(1).clamp(min=1)


def zero_padding(x: Tensor, ends: Tensor | None) -> Tensor:
    """(B, D, L) with zeros at padding, like the zeros that a convolution pads with."""
    return x if ends is None else x * frame_mask(x, ends).unsqueeze(1)
