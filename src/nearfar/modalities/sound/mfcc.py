"""Mel-frequency cepstral coefficients over time, as a baseline: what speech was recognised by before deep learning."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.modalities.baseline import Baseline

COEFFICIENTS = 20
FRAMES = 32  # that each sound is brought to
_REACH = 4  # frames on each side of which the slope is taken: librosa's width of 9
_LEAST = 1e-3  # of a deviation


class MfccSequence(Baseline):
    """20 coefficients and their slopes, centred and scaled over the sound's own frames, at 32 places in its length.

    The mean of each coefficient over a sound is its microphone and its speaker's voice as much as its words; where it
    goes over time is what is said. No label is used.

    Reference: Davis & Mermelstein 1980, https://doi.org/10.1109/TASSP.1980.1163420; cepstral mean normalisation:
        Atal 1974, https://doi.org/10.1121/1.1914702
    """

    protocols = ("knn", "linear")
    origin = f"{COEFFICIENTS} MFCC and their slopes at {FRAMES} places in time, normalised for each sound"

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 1, mels, T) log-mels, NaN behind the end, to (B, 2 · 20 · 32)."""
        lengths = (~x[:, 0, 0].isnan()).sum(1).tolist()
        rows = []
        for mels, length in zip(x[:, 0], lengths, strict=True):
            c = cepstrum(mels[:, : max(1, length)].nan_to_num(0.0))  # (20, T)
            both = torch.cat([c, slopes(c)])  # (40, T)
            both = both - both.mean(1, keepdim=True)
            both = both / both.square().mean(1, keepdim=True).sqrt().clamp(min=_LEAST)
            rows.append(F.interpolate(both[None], size=FRAMES, mode="linear", align_corners=True).flatten())
        return torch.stack(rows).float()


def cepstrum(log_mels: Tensor, count: int = COEFFICIENTS) -> Tensor:
    """(mels, T) to (count, T): the orthonormal DCT-II over the bands, the first coefficients.

    Equal to `librosa.feature.mfcc(S=log_mels, n_mfcc=count)`; of fewer bands than coefficients, all there are.
    """
    bands = len(log_mels)
    k, n = (torch.arange(size, dtype=torch.float64) for size in (min(count, bands), bands))
    basis = torch.cos(math.pi / bands * (n + 0.5) * k[:, None]) * math.sqrt(2 / bands)  # (count, mels)
    basis[0] /= math.sqrt(2)
    return basis.to(log_mels) @ log_mels


def slopes(x: Tensor, reach: int = _REACH) -> Tensor:
    """(C, T) slopes of the lines through each frame and its `reach` neighbours on both sides; ends are repeated.

    Equal to `librosa.feature.delta(x, width=2 * reach + 1, mode="nearest")`.
    """
    weights = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    weights = weights / weights.square().sum()
    padded = F.pad(x[:, None], (reach, reach), mode="replicate")  # (C, 1, T + 2 reach)
    return F.conv1d(padded, weights[None, None])[:, 0]
