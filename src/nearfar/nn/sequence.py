"""Encoders of sequences by name: raw sound, and series of any number of channels, to frames and to one vector.

A batch of sequences is one tensor (B, C, T). Shorter sequences are padded with NaN at their end, which does not change
their features.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses.arguments import check_choice
from nearfar.messages import nearest_or_all
from nearfar.nn.frames import Pooling, frame_mask, pool_frames, pooled_dim, zero_missing, zero_padding
from nearfar.nn.kernel_encoder import CPCKernelEncoder, KernelEncoder


@runtime_checkable
class FrameEncoder(Protocol):
    """An encoder that also gives a row for every frame in time."""

    hop: int  # steps of the input from one frame to the next

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, T) to (B, L, D), and (B, L) booleans: False at padding."""
        ...


class CPCEncoder(nn.Module):
    """CPC's strided convolutions `g_enc` and, over their latents, the recurrent `g_ar`.

    Deviation from the paper: each latent is normalized over its features before the ReLU, as in Rivière et al. 2020.
    Training then does not depend on loudness, and no statistic is shared between samples or time steps.

    Args:
        channels: C of the input (B, C, T).
        kernels, strides: of the convolutions. Frames are `hop` steps apart, the product of the strides.
        width: features of a latent z, or a number for each convolution.
        context: features of a context c, which depends on the frames up to its own.
        pooling: of the contexts to h: "mean", "max", or "both", concatenated.
        recurrent: "gru" or "lstm".
        pad_first: where kernel minus stride is odd, the larger part of the padding comes first, as in CPC_audio.
        unbiased: the norms divide by features - 1 in their variance, as those of CPC_audio do.

    Reference: van den Oord et al. 2018, section 3.1, https://arxiv.org/abs/1807.03748; the normalization: Rivière et
    al. 2020, https://arxiv.org/abs/2002.02848
    """

    def __init__(
        self,
        channels: int = 1,
        *,
        kernels: Sequence[int] = (10, 8, 4, 4, 4),
        strides: Sequence[int] = (5, 4, 2, 2, 2),
        width: int | Sequence[int] = 512,
        context: int = 256,
        pooling: Pooling = "mean",
        recurrent: Literal["gru", "lstm"] = "gru",
        pad_first: bool = False,
        unbiased: bool = False,
    ) -> None:
        super().__init__()
        check_choice("recurrent", recurrent, ("gru", "lstm"))
        if len(kernels) != len(strides) or any(k < s or s < 1 for k, s in zip(kernels, strides, strict=False)):
            raise ValueError(
                f"kernels are {tuple(kernels)}, expected as many as strides {tuple(strides)}, none smaller"
            )
        check_choice("pooling", pooling, ("mean", "max", "both"))
        widths = [channels, *([width] * len(kernels) if isinstance(width, int) else width)]
        if len(widths) != len(kernels) + 1:
            raise ValueError(f"width is {width}, expected one number, or one for each of {len(kernels)} convolutions")
        self.convolutions = nn.ModuleList(
            nn.Conv1d(i, o, k, stride=s) for i, o, k, s in zip(widths, widths[1:], kernels, strides, strict=False)
        )
        norm = UnbiasedLayerNorm if unbiased else nn.LayerNorm
        self.norms = nn.ModuleList(norm(features) for features in widths[1:])
        self.recurrent = (nn.GRU if recurrent == "gru" else nn.LSTM)(widths[-1], context, batch_first=True)
        self.pad_first = pad_first
        self.hop, self.width, self.pooling = prod(strides), widths[-1], pooling
        self.context_features = context
        self.num_features = pooled_dim(context, pooling)

    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, T) to z (B, L, width), and (B, L) booleans: False at padding."""
        x, ends = zero_missing(x, self.hop)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            assert isinstance(convolution, nn.Conv1d)
            stride = convolution.stride[0]
            spare = convolution.kernel_size[0] - stride
            before = spare - spare // 2 if self.pad_first else spare // 2
            x = _features_last(convolution, F.pad(x, (before, spare - before)))  # (B, width, T // stride)
            x = F.relu(norm(x.transpose(1, 2))).transpose(1, 2)
            ends = None if ends is None else (ends // stride).clamp(min=1)
            x = zero_padding(x, ends)
        return x.transpose(1, 2), frame_mask(x, ends)

    def contexts(self, z: Tensor) -> Tensor:
        """Latents (B, L, width) to c (B, L, context); each context depends on its frame and earlier ones."""
        c: Tensor = self.recurrent(z)[0]
        return c

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The contexts (B, L, context), and (B, L) booleans: False at padding."""
        z, present = self.latents(x)
        return self.contexts(z), present

    def forward(self, x: Tensor) -> Tensor:
        return pool_frames(*self.frames(x), self.pooling)


class UnbiasedLayerNorm(nn.LayerNorm):
    """LayerNorm whose variance is divided by the number of features minus 1."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + self.eps)
        return torch.addcmul(self.bias, y, self.weight)


class DilatedEncoder(nn.Module):
    """Residual blocks of dilated convolutions without striding, after TS2Vec, at the size of a CPU.

    Args:
        channels: C of the input (B, C, T).
        width: features inside.
        depth: blocks, the i-th dilated by 2^i: frames see about 2^(depth + 2) steps.
        features: of a frame, after a linear map.
        pooling: of the frames to h.

    Reference: Yue et al. 2022, section 3.1, https://arxiv.org/abs/2106.10466. Deviations: a linear map in place of the
    last block; other methods than `TS2Vec` have views in place of masked latents.
    """

    hop = 1

    def __init__(
        self, channels: int = 1, *, width: int = 64, depth: int = 6, features: int = 320, pooling: Pooling = "max"
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("mean", "max", "both"))
        self.inlet = nn.Conv1d(channels, width, 1)
        self.blocks = nn.ModuleList(_Block(width, dilation=2**n) for n in range(depth))
        self.outlet = nn.Conv1d(width, features, 1)
        self.pooling = pooling
        self.num_features = pooled_dim(features, pooling)

    def frames(self, x: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, C, T) to (B, T, features), and (B, T) booleans: False at padding.

        Args:
            keep: (B, T) booleans; the others are masked behind the first layer, as TS2Vec masks.
        """
        x, ends = zero_missing(x, self.hop)
        x = self.inlet(x)
        if keep is not None:
            x = x * keep.unsqueeze(1)
        for block in self.blocks:
            x = block(x, ends)
        x = self.outlet(x)
        return x.transpose(1, 2), frame_mask(x, ends)

    def forward(self, x: Tensor) -> Tensor:
        return pool_frames(*self.frames(x), self.pooling)


class _Block(nn.Module):
    """Residual block: twice an activation and a convolution."""

    def __init__(self, width: int, *, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.second = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)

    def forward(self, x: Tensor, ends: Tensor | None) -> Tensor:
        y: Tensor = self.first(zero_padding(F.gelu(x), ends))
        y = self.second(zero_padding(F.gelu(y), ends))
        return x + y


_small = partial(CPCEncoder, width=128, context=128)
_small_sound = partial(CPCEncoder, width=(64, 64, 128, 128, 128), context=128, pooling="both")  # first, most steps
PRESETS: dict[str, Callable[..., nn.Module]] = {
    "cpc-16k": CPCEncoder,  # the paper's: a frame every 10 ms of sound at 16 kHz; 5.8 M parameters
    "cpc-audio": partial(  # the same as CPC_audio has it: narrower, an LSTM; 1.8 M
        CPCEncoder, width=256, recurrent="lstm", pad_first=True, unbiased=True
    ),
    "cpc-8k": partial(CPCEncoder, kernels=(10, 8, 4, 4, 3), strides=(5, 4, 2, 2, 1)),  # 10 ms at 8 kHz; 5.6 M
    "cpc-16k-small": _small_sound,  # for a CPU; 0.3 M
    "cpc-8k-small": partial(_small_sound, kernels=(10, 8, 4, 4, 3), strides=(5, 4, 2, 2, 1)),
    "cpc-series": partial(_small, kernels=(5, 4, 4), strides=(1, 2, 2)),  # a frame for every four steps of a series
    "cpc-series-fine": partial(_small, kernels=(5, 3, 3), strides=(1, 1, 1)),  # one for each step
    "dilated": DilatedEncoder,  # series; 0.17 M
    "dilated-small": partial(DilatedEncoder, width=32, depth=6, features=256),  # 0.05 M
    "dilated-deep": partial(DilatedEncoder, depth=10),  # TS2Vec's depth; 0.27 M
    "kernels": KernelEncoder,  # series; 3,000 parameters
    "cpc-kernels": CPCKernelEncoder,
}
_OF_LENGTH = ("kernels", "cpc-kernels")  # whose shape depends on the length of the sequences


def sequence_encoder(name: str, *, channels: int = 1, steps: int | None = None) -> nn.Module:
    """An encoder of sequences (B, channels, T) to h (B, F), with F in `num_features`, and with `frames`.

    Args:
        name: of `PRESETS`.
        steps: T of the longest sequence, for encoders whose shape depends on it; None: their usual one.

    >>> encoder = sequence_encoder("cpc-16k-small")
    >>> sound = torch.randn(2, 1, 20480)
    >>> encoder(sound).shape, encoder.frames(sound)[0].shape
    (torch.Size([2, 256]), torch.Size([2, 128, 128]))
    """
    if name not in PRESETS:
        raise ValueError(f"unknown sequence encoder {name!r}{nearest_or_all(name, PRESETS)}")
    return PRESETS[name](channels, **({"steps": steps} if steps and name in _OF_LENGTH else {}))


def _features_last(convolution: nn.Conv1d, x: Tensor) -> Tensor:
    """The convolution of (B, C, T), with the features of a step adjacent in memory, so that their norm needs no copy.

    As an image with one row, since torch has this memory format (channels_last) only for images.
    """
    rows, weight = (y.unsqueeze(2).contiguous(memory_format=torch.channels_last) for y in (x, convolution.weight))
    return F.conv2d(rows, weight, convolution.bias, stride=(1, convolution.stride[0])).squeeze(2)
