"""An encoder of series that is good from the start: how often each of many short patterns occurs, and when."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.nn.frames import frame_mask, zero_missing

SHARPNESS = 8.0  # of the threshold, per standard deviation of a kernel's response
SHORT = 32  # steps of a series whose frames are too few to be averaged for CPC
LEAST_FRAMES = 128  # of the longest series


class KernelEncoder(nn.Module):
    """Kernels of several dilations, each with a threshold; the share of time above it, and whether early or late.

    A frame is y = sigmoid(8 (r + b)), with r the responses of the kernels, standardized over the batch by a BatchNorm.
    Of each kernel's frames y_1 ... y_L the features are the mean of y_i and of y_i cos(π (i - ½) / L): what happens
    in the first half of a series counts as positive there, in the second half as negative.

    Random kernels with hard thresholds are ROCKET, whose shares above the threshold classify series well without any
    training. Here thresholds are soft, so that kernels and thresholds are learned from such a start.

    Args:
        channels: C of the input (B, C, T).
        steps: T of the longest series. The largest dilation reaches over all of it, and frames are `hop` steps apart,
            a power of two that leaves a series so long at least 128 of them.
        kernels: number of patterns; there are twice as many features.
        length: taps of a kernel.

    Reference: Dempster et al. 2020, https://arxiv.org/abs/1910.13051
    """

    def __init__(self, channels: int = 1, *, steps: int = 128, kernels: int = 256, length: int = 9) -> None:
        super().__init__()
        scales = 1 + max(0, int(math.log2(max(1.0, (steps - 1) / (length - 1)))))
        self.hop = 1 << int(math.log2(max(1.0, steps / LEAST_FRAMES)))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(
                channels,
                len(range(scale, kernels, scales)),
                length,
                stride=self.hop,
                padding=(length // 2) << scale,
                dilation=1 << scale,
                bias=False,
            )
            for scale in range(scales)
        )
        for convolution in self.convolutions:
            _start_without_mean(convolution.weight)  # type: ignore[arg-type]
        self.norm = nn.BatchNorm1d(kernels, affine=False)
        self.threshold = nn.Parameter(torch.randn(kernels))
        self.num_features = 2 * kernels

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, T) to (B, T // hop, kernels) between 0 and 1, and booleans: False at padding."""
        x, ends = zero_missing(x, self.hop)
        response = torch.cat([convolution(x) for convolution in self.convolutions], 1)  # (B, K, ceil(T / hop))
        response = response[..., : x.shape[-1] // self.hop]
        present = frame_mask(response, None if ends is None else ends // self.hop)
        if ends is None:
            response = self.norm(response).transpose(1, 2)
        else:  # padding is no part of the statistics
            there = self.norm(response.transpose(1, 2)[present])
            response = there.new_zeros(*present.shape, there.shape[1]).masked_scatter(present.unsqueeze(2), there)
        return torch.sigmoid(SHARPNESS * (response + self.threshold)), present

    def forward(self, x: Tensor) -> Tensor:
        frames, present = self.frames(x)
        weights = time_weights(present).to(frames.dtype)  # (B, 2, L)
        return (weights @ frames).flatten(1)


class CPCKernelEncoder(KernelEncoder):
    """The same for CPC: latents are frames averaged in fours and mapped linearly, contexts those of a GRU over them.

    The features are those of the kernels; contexts serve the prediction alone. Kernels of large dilation see a part of
    what is to be predicted, so that the task is easier than the paper's, and its bound is not of the future alone.

    Args:
        width: features of a latent z.
        context: features of a context c.
    """

    def __init__(
        self, channels: int = 1, *, steps: int = 128, width: int = 64, context: int = 128, **shape: int
    ) -> None:
        super().__init__(channels, steps=steps, **shape)
        self.averaged = 4 if steps >= SHORT else 1  # frames of one latent
        self.width, self.context_features = width, context
        self.to_latent = nn.Linear(self.num_features // 2, width)
        self.recurrent = nn.GRU(width, context, batch_first=True)

    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, T) to z (B, L, width), and (B, L) booleans: False at padding."""
        frames, present = self.frames(x)
        many = min(self.averaged, frames.shape[1])
        there = present.unsqueeze(2).to(frames.dtype)  # (B, L, 1)
        total, count = (F.avg_pool1d(y.transpose(1, 2), many).transpose(1, 2) for y in (frames * there, there))
        whole = frame_mask(total.transpose(1, 2), present.sum(1) // many)
        return self.to_latent(total / count.clamp_min(1e-6)), whole

    def contexts(self, z: Tensor) -> Tensor:
        """Latents (B, L, width) to c (B, L, context); each context depends on its latent and earlier ones."""
        c: Tensor = self.recurrent(z)[0]
        return c


def time_weights(present: Tensor) -> Tensor:
    """(B, L) frames that are there to (B, 2, L): 1 / n of each of n frames, and the same times cos(π (i - ½) / n).

    >>> [[round(float(x), 3) + 0.0 for x in row] for row in time_weights(torch.tensor([[True, True, False]]))[0]]
    [[0.5, 0.5, 0.0], [0.354, -0.354, 0.0]]
    """
    count = present.sum(1, keepdim=True)  # (B, 1)
    place = (torch.arange(present.shape[1], device=present.device) + 0.5) / count  # (B, L)
    mean = present / count
    return torch.stack([mean, mean * torch.cos(math.pi * place)], 1)


@torch.no_grad()
def _start_without_mean(weight: Tensor) -> None:
    """Random kernels (K, C, length) of norm 1, and mean 0 in each channel: levels and slow drifts do not count."""
    weight.normal_()
    weight -= weight.mean(2, keepdim=True)
    weight /= weight.flatten(1).norm(dim=1)[:, None, None]
