"""Encoders of log-mel spectrograms by name: BYOL-A's, and any image backbone on the spectrogram as a picture."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.sound.spectrogram import stretch
from nearfar.nn.kernel_encoder import time_weights
from nearfar.weights.load import begin_from_file
from nearfar.weights.namings import Naming

# Channels of the convolutions, each of which halves bands and frames; features of a frame.
AUDIO: dict[str, dict[str, Any]] = {
    "audio-micro": {"channels": (8, 16, 16), "features": 64},  # for tests
    "audio-tiny": {"channels": (16, 32, 64), "features": 256},  # for a CPU
    "audio-quick": {"channels": (16, 32, 64), "features": 256, "dropout": 0.0, "ordered": True},  # of stretched sounds
    "audio-512": {"features": 512},
    "audio-1024": {"features": 1024},
    "audio-2048": {"features": 2048},  # the paper's
}
STRETCHING = frozenset({"audio-quick"})
DROPOUT = 0.3


class AudioEncoder(nn.Module):
    """BYOL-A's encoder: three convolutions that halve, two layers on what is at one time, mean + maximum over time.

    A spectrogram ends where only NaN follows, and what is behind the end of one changes nothing of it.

    Args:
        n_mels: bands of the input.
        channels: of the convolutions; the paper's three have 64.
        features: of a frame, and of h.
        ordered: h has as many features again, the mean over n frames of frame i times cos(π (i - ½) / n): what happens
            in the first half of a sound counts as positive there, in the second half as negative.
        dropout: between the two layers.
        stretched: frames that each spectrogram is stretched to before it is encoded, so that fast and slow sounds are
            alike; `frames` takes it as it is. None: no stretching.

    Reference: Niizumi et al. 2021, table II, https://arxiv.org/abs/2103.06695
    """

    def __init__(
        self,
        n_mels: int = 64,
        *,
        channels: Sequence[int] = (64, 64, 64),
        features: int = 2048,
        ordered: bool = False,
        dropout: float = DROPOUT,
        stretched: int | None = None,
    ) -> None:
        super().__init__()
        self.stretched = stretched
        self.hop = 2 ** len(channels)  # frames of the spectrogram to one of the encoder's
        if n_mels < self.hop:
            raise ValueError(
                f"n_mels is {n_mels}, expected at least {self.hop}: the encoder reads so many in each of its bands"
            )
        self.blocks = (
            nn.ModuleList(  # the maximum before the ReLU: the same values, and a quarter of them to go through
                nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.MaxPool2d(2), nn.ReLU())
                for i, o in pairwise((1, *channels))
            )
        )
        self.layers = nn.Sequential(
            nn.Linear(channels[-1] * (n_mels // self.hop), features),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(features, features),
            nn.ReLU(),
        )
        self.ordered = ordered
        self.num_features = (1 + ordered) * features

    def foreign_namings(self) -> tuple[Naming, ...]:
        """The authors' names, and their order of columns: a band's channels together, where ours are a channel's bands.

        Reference: https://github.com/nttcslab/byol-a, models.py
        """
        count = len(self.blocks)
        places = {f"blocks.{i}.{j}.": f"features.{4 * i + j}." for i in range(count) for j in (0, 1)}
        places |= {"layers.": "fc."}
        names = {
            name: their + name.removeprefix(own)
            for name in self.state_dict()
            for own, their in places.items()
            if name.startswith(own)
        }

        def reordered(name: str, x: Tensor) -> Tensor:
            if name != "layers.0.weight":
                return x
            channels = int(self.blocks[-1][0].out_channels)  # type: ignore[index]
            columns: Tensor = x.unflatten(1, (-1, channels))  # (F, bands, channels)
            return columns.transpose(1, 2).flatten(1)

        return (Naming("BYOL-A's encoder", names, reordered),)

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1, mels, T) to frames (B, T // 8, features), and (B, T // 8) booleans: False behind the end."""
        if x.ndim != 4 or x.shape[1] != 1 or x.shape[3] < self.hop:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (B, 1, mels, T) with T of at least {self.hop}")
        ends = _ends(x)
        x = x if ends is None else torch.nan_to_num(x, nan=0.0)
        for block in self.blocks:
            x = block(x)
            if ends is not None:
                ends = (ends // 2).clamp(min=1)
                x = x * _present(x, ends)[:, None, None]
        h: Tensor = self.layers(x.permute(0, 3, 1, 2).flatten(2))  # (B, L, features)
        return h, _present(x, ends)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 1, mels, T) to (B, num_features)."""
        h, present = self.frames(x if self.stretched is None else _stretched(x, self.stretched))
        there = present[..., None]
        mean = (h * there).sum(1) / there.sum(1)
        pooled = mean + h.masked_fill(~there, -torch.inf).amax(1)
        if not self.ordered:
            return pooled
        early = time_weights(present)[:, 1:].to(h.dtype) @ h  # (B, 1, features)
        return torch.cat([pooled, early[:, 0]], 1)


class Pictured(nn.Module):
    """An image backbone that sees a spectrogram (B, 1, mels, T) as a picture of three equal channels."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.num_features: int = backbone.num_features  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.backbone(x.expand(-1, 3, -1, -1))
        return h


def audio_encoder(
    name: str, *, n_mels: int = 64, frames: int = 64, pretrained: bool = False, weights: str | None = None
) -> nn.Module:
    """An encoder of log-mels x (B, 1, mels, T) to h (B, F), with F in its `num_features`.

    Args:
        name: of `AUDIO`, whose encoders also have `frames`; or an image backbone.
        frames: of a view, to which encoders of `STRETCHING` bring every spectrogram.
        pretrained: of an image backbone.
        weights: of a run on sounds, a file in any usual layout, BYOL-A's among them, or those of an image backbone.

    >>> audio_encoder("audio-tiny")(torch.zeros(2, 1, 64, 96)).shape
    torch.Size([2, 256])
    """
    if name not in AUDIO:
        return Pictured(backbone(name, size=n_mels, pretrained=pretrained, weights=weights))
    if pretrained:
        raise ValueError(f"there are no published weights of {name!r}; give a run or a file as weights")
    network = AudioEncoder(n_mels, stretched=frames if name in STRETCHING else None, **AUDIO[name])
    if weights is not None:
        begin_from_file(network, weights, name)
    return network


def _stretched(x: Tensor, frames: int) -> Tensor:
    """(B, 1, mels, T), NaN behind the end, to (B, 1, mels, frames) without."""
    ends = _ends(x)
    if ends is None:
        if x.shape[-1] == frames:
            return x
        ends = torch.full((len(x),), x.shape[-1], device=x.device)
    whole = torch.nan_to_num(x[:, 0], nan=0.0)
    return stretch(whole, torch.zeros_like(ends), ends, frames)[:, None]


def _ends(x: Tensor) -> Tensor | None:
    """(B,) the frames of each spectrogram; None where all are known to be whole."""
    missing = x.isnan()
    if x.device.type == "cpu" and not bool(missing.any()):  # elsewhere to know would be to wait
        return None
    steps = torch.arange(1, x.shape[-1] + 1, device=x.device)
    return (steps * ~missing.all(2).all(1)).amax(1)


def _present(x: Tensor, ends: Tensor | None) -> Tensor:
    """(B, L), of (B, C, M, L)."""
    if ends is None:
        return x.new_ones(len(x), x.shape[-1], dtype=torch.bool)
    return torch.arange(x.shape[-1], device=x.device) < ends[:, None]
