"""Log-mel spectrograms of whole batches, on the waves' device."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.modalities.baseline import Baseline
from nearfar.modalities.image.views.crop import chunks
from nearfar.nn.scratch import scratch_for

GROUP = 16  # bands that are summed together
_SILENCE = 1e-12  # energy, where the floor is another one for each sound
_LEAST = 1e-3  # above silence, and of a deviation
VALUES = 150_000  # of the frames that are transformed at a time on the CPU: they fit into a core's cache


@dataclass(frozen=True)
class LogMel:
    """The logarithm of the energy in bands of frequency, over time: librosa's `melspectrogram` with its defaults.

    Bands are Slaney's: evenly spaced and equally weighted in area; frames are centred, the wave is followed by zeros
    on both sides, the window is Hann's. Equal to `log(melspectrogram(...) + floor)` within 1e-6 in float64, and within
    1e-3 in float32, where a band between loud ones has little but rounding in it.

    Attributes:
        sample_rate: values a second.
        window, hop: values of a frame, and from one frame to the next.
        n_mels: bands, between `f_min` and `f_max` Hz.
        floor: added to the energy, so that silence has a logarithm; 1e-6 is about what the last bits of int16 hold.
        centred: every band of a sound has mean 0 over the frames that are not silent, and all of them together have
            deviation 1; what is silent is 0. So neither microphone nor loudness is heard.
        range_db: of `centred`, in place of `floor`: the energy so many dB below the largest of a sound is added to all
            of it, so that neither its loudness nor how quiet the room was is heard; None: `floor`.

    The defaults are BYOL-A's but for the floor: https://arxiv.org/abs/2103.06695, section IV-A.
    """

    sample_rate: int = 16_000
    window: int = 1024
    hop: int = 160
    n_mels: int = 64
    f_min: float = 60.0
    f_max: float = 7800.0
    floor: float = 1e-6
    centred: bool = False
    range_db: float | None = None

    def __post_init__(self) -> None:
        for name in ("sample_rate", "window", "hop", "n_mels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if not 0 <= self.f_min < self.f_max <= self.sample_rate / 2:
            raise ValueError(
                f"f_min and f_max are {self.f_min:g} and {self.f_max:g} Hz, expected 0 <= f_min < f_max <= half the "
                f"sample rate, {self.sample_rate / 2:g}"
            )
        if self.floor <= 0:
            raise ValueError(f"floor is {self.floor}, expected above 0")
        if self.range_db is not None and not (self.centred and self.range_db > 0):
            raise ValueError(f"range_db is {self.range_db} and centred {self.centred}, expected above 0 and True")

    @property
    def least(self) -> float:
        """The energy of silence."""
        return self.floor if self.range_db is None else _SILENCE

    def frames(self, values: int) -> int:
        """Of a wave of so many values."""
        return 1 + (values - self.window % 2) // self.hop

    def frames_of(self, lengths: Tensor) -> Tensor:
        """Of waves of so many values each."""
        return 1 + (lengths - self.window % 2) // self.hop

    @torch.no_grad()
    def __call__(self, waves: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, T) floating point to (B, mels, 1 + T // hop).

        Args:
            lengths: (B,) values of each wave; `centred` takes mean and deviation of their frames alone, so that a sound
                is the same beside longer ones. None: all T.
        """
        if waves.ndim != 2 or not waves.is_floating_point():
            raise ValueError(f"waves are {waves.dtype} of shape {tuple(waves.shape)}, expected floating point (B, T)")
        window, filters = _constants(self, waves.dtype, waves.device)
        side = self.window // 2
        frames = F.pad(waves, (side, side)).unfold(1, self.window, self.hop)  # (B, N, window)
        scratch, bins = scratch_for(waves), self.window // 2 + 1
        result = waves.new_empty(len(waves), self.n_mels, frames.shape[1])
        for start, stop in chunks(waves, frames.shape[1] * self.window, VALUES):
            part, shape = frames[start:stop], (stop - start, frames.shape[1])
            windowed = torch.mul(part, window, out=scratch.take("frames", tuple(part.shape), waves))
            parts = scratch.take("spectrum", (*shape, bins, 2), waves)  # real and imaginary
            torch.fft.rfft(windowed, out=torch.view_as_complex(parts))
            torch.mul(parts, parts, out=parts)
            values, bands = parts.view(-1, 2 * bins), scratch.take("bands", (*shape, self.n_mels), waves)
            for first, low, part_filters in filters:
                high, last = low + len(part_filters), first + part_filters.shape[1]
                torch.mm(values[:, low:high], part_filters, out=bands.view(-1, self.n_mels)[:, first:last])
            torch.log(bands.add_(self.least).transpose(1, 2), out=result[start:stop])
        if not self.centred:
            return result
        counts = None if lengths is None else self.frames_of(lengths)
        return _centred(result, math.log(self.least), counts, self.range_db)


def _centred(x: Tensor, silence: float, counts: Tensor | None = None, range_db: float | None = None) -> Tensor:
    """(B, M, T) log-mels, each by its own frames that are above silence, of the first `counts` (B,)."""
    heard = (x > silence + _LEAST).any(1, keepdim=True)  # (B, 1, T)
    if counts is not None:
        inside = (torch.arange(x.shape[2], device=x.device) < counts.to(x.device)[:, None])[:, None]
        heard = inside & (heard if range_db is None else heard.any(2, keepdim=True))
    if range_db is not None:
        loudest = x.masked_fill(~heard, silence).amax((1, 2), keepdim=True)
        x = torch.logaddexp(x, loudest - range_db / 10 * math.log(10))
    frames = heard.sum(2, keepdim=True).clamp(min=1)
    x = (x - (x * heard).sum(2, keepdim=True) / frames) * heard
    deviation = (x.square().sum((1, 2), keepdim=True) / (frames * x.shape[1])).sqrt()
    return x / deviation.clamp(min=_LEAST)


@lru_cache(maxsize=16)
def _constants(
    mel: LogMel, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, tuple[tuple[int, int, Tensor], ...]]:
    """Window (W,), and filters in groups of neighbouring bands: the first band, the first value, (values, bands).

    They also sum the squares of real and imaginary part. A group reads the values that its bands cover, not all.
    """
    window = torch.hann_window(mel.window, periodic=True, dtype=torch.float64)
    filters = mel_filters(mel).t().repeat_interleave(2, 0)  # (2 (W // 2 + 1), mels)
    groups = []
    for first in range(0, mel.n_mels, GROUP):
        part = filters[:, first : first + GROUP]
        used = part.any(1).nonzero()[:, 0]
        low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)  # bands narrower than a value: nothing
        groups.append((first, low, part[low:high].to(device, dtype).contiguous()))
    return window.to(device, dtype), tuple(groups)


def mel_filters(mel: LogMel) -> Tensor:
    """(mels, window // 2 + 1) float64: triangles of equal area, evenly spaced in Slaney's mels.

    Reference: Slaney 1998, Auditory Toolbox, Interval Research technical report 1998-010.
    """
    edges = _hertz(torch.linspace(_mel(mel.f_min), _mel(mel.f_max), mel.n_mels + 2, dtype=torch.float64))  # (mels + 2,)
    bins = torch.arange(mel.window // 2 + 1, dtype=torch.float64) * (mel.sample_rate / mel.window)
    width = edges.diff()  # (mels + 1,)
    ramps = edges[:, None] - bins  # (mels + 2, bins)
    rising, falling = -ramps[:-2] / width[:-1, None], ramps[2:] / width[1:, None]
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return triangles * (2 / (edges[2:] - edges[:-2]))[:, None]


_LINEAR, _BREAK = 200 / 3, 1000.0  # Hz of a mel below the break, and where it is
_STEP = math.log(6.4) / 27  # of the logarithm of the frequency, to a mel, above it


def _mel(hertz: float) -> float:
    """
    >>> round(_mel(500.0), 6)
    7.5
    """
    return hertz / _LINEAR if hertz < _BREAK else _BREAK / _LINEAR + math.log(hertz / _BREAK) / _STEP


def _hertz(mels: Tensor) -> Tensor:
    curved = _BREAK * torch.exp(_STEP * (mels - _BREAK / _LINEAR))
    return torch.where(mels < _BREAK / _LINEAR, mels * _LINEAR, curved)


class LogMelStatistics(Baseline):
    """Mean and deviation of each band over time, as an encoder; single frames, too."""

    stacked = 4  # frames of the spectrogram in one of `frames`

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 1, mels, T), NaN behind the end, to (B, 2 mels)."""
        there = ~x[:, 0].isnan()  # (B, mels, T)
        count = there.sum(2)
        values = torch.nan_to_num(x[:, 0], nan=0.0)
        mean = values.sum(2) / count
        deviation = (((values - mean[..., None]).square() * there).sum(2) / count).sqrt()
        return torch.cat([mean, deviation], 1)

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1, mels, T) to (B, T // 4, 4 mels), four frames side by side, and (B, T // 4): False behind the end."""
        x = x[:, 0, :, : x.shape[-1] // self.stacked * self.stacked].transpose(1, 2)  # (B, T, mels)
        x = x.reshape(len(x), -1, self.stacked * x.shape[2])
        missing = x.isnan().any(2)
        return x.masked_fill(missing[..., None], 0.0), ~missing
