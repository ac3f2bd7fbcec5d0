"""A random view of a batch of sounds, as a wave or as a log-mel spectrogram; presets by paper; and without chance."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nearfar.modalities.sound.logmel import LogMel
from nearfar.modalities.sound.spectrogram import draw_boxes, log_mixup_exp, mask, resize_crop, stretch
from nearfar.modalities.sound.wave import Trim, add_noise, change_gain, cut, floats_of, leveled
from nearfar.nn.arguments import check_probability, check_range
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.shard import Shard

LEAST_DEVIATION = 1e-5
SoundViewParameters = dict[str, Tensor]


@dataclass(frozen=True)
class SoundView:
    """What a view does, in this order; the defaults change nothing but the length.

    Attributes:
        values: of the crop. A shorter sound is put anywhere into so many, with silence around it.
        trim: cuts off the quiet beginning and end of the sound first; None: they stay.
        ends: a shorter sound begins with the view and ends in NaN instead; of waves.
        level: waves are brought to power 1.
        parts: of the sound's own length, from and to: a part of the spectrogram that is stretched to the length of the
            view, instead of a crop of `values`; None: the crop.
        mel: makes the spectrogram; None: the view is the wave.
        mean, std: of the log-mels of the data, by which they are normalised.
        speed: from and to; faster is higher.
        gain: dB, from and to.
        noise: dB that the sound is above white noise, from and to; in `noisy` of the views.
        mixup: most of another sound of the batch in the background.
        resize: heights and lengths of the box that is resized to the whole, from and to; None: no box.
        heights: of the box, where they are others than its lengths.
        bands, frames: most of them that are masked, by one stripe each.
        renormalize: all views of the batch together to mean 0 and deviation 1, also those that are made beside this
            one (`make_sound_views`).
    """

    values: int
    mel: LogMel | None = None
    mean: float = 0.0
    std: float = 1.0
    trim: Trim | None = None
    ends: bool = False
    level: bool = False
    parts: tuple[float, float] | None = None
    speed: tuple[float, float] = (1.0, 1.0)
    gain: tuple[float, float] = (0.0, 0.0)
    noise: tuple[float, float] = (10.0, 40.0)
    noisy: float = 0.0
    mixup: float = 0.0
    resize: tuple[float, float] | None = None
    heights: tuple[float, float] | None = None
    bands: int = 0
    frames: int = 0
    renormalize: bool = False

    def __post_init__(self) -> None:
        if self.values < 1:
            raise ValueError(f"values is {self.values}, expected at least 1")
        check_range("speed", self.speed)
        check_probability("noisy", self.noisy)
        if not 0 <= self.mixup < 1:
            raise ValueError(f"mixup is {self.mixup}, expected from 0 to below 1")
        for name in ("resize", "heights", "parts"):
            if getattr(self, name) is not None:
                check_range(name, getattr(self, name))
        if self.heights is not None and self.resize is None:
            raise ValueError("heights are of the box of resize, but resize is None")
        for name in ("gain", "noise"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} is {(low, high)}, expected (low, high)")
        if self.mel is None and (
            self.mixup or self.resize or self.parts or self.bands or self.frames or self.renormalize
        ):
            raise ValueError("mixup, resize, parts, bands, frames and renormalize are of spectrograms, but mel is None")
        if self.parts is not None and (self.parts[1] > 1 or self.speed != (1.0, 1.0)):
            raise ValueError(f"parts is {self.parts}, expected at most 1, and no speed beside it")
        if self.mel is not None and (self.ends or self.level):
            raise ValueError("ends and level are of waves, but mel is not None")

    def draw(self, count: int, generator: torch.Generator) -> SoundViewParameters:
        """All that is chance in B views, whatever the sounds; always in the same order, used or not."""
        u = torch.rand(9, count, generator=generator, dtype=torch.float64)
        drawn: SoundViewParameters = {
            "place": u[0],
            "speed": self.speed[0] + (self.speed[1] - self.speed[0]) * u[1],
            "gain": self.gain[0] + (self.gain[1] - self.gain[0]) * u[2],
            "noise": self.noise[0] + (self.noise[1] - self.noise[0]) * u[3],
            "noisy": u[4] < self.noisy,
            "ratio": self.mixup * u[5],
            "other": (torch.arange(count) + 1 + (u[6] * (count - 1)).long()) % max(count, 1),  # never the sound itself
            "stripes": u[7:],
            "stripe places": torch.rand(2, count, generator=generator, dtype=torch.float64),
        }
        if self.noisy:
            drawn["white"] = torch.randn(count, self.values, generator=generator)
        if self.parts is not None:
            low, high = self.parts
            drawn["part"] = low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)
        if self.mel is not None and self.resize is not None:
            frames = self.mel.frames(self.values)
            drawn["boxes"] = draw_boxes(
                count, self.mel.n_mels, frames, generator, lengths=self.resize, heights=self.heights
            )
        return drawn

    @torch.no_grad()
    def apply(self, waves: Tensor, drawn: SoundViewParameters, shard: Shard | None = None) -> Tensor:
        """(B, L) int16 to (B, 1, mels, frames), or to (B, 1, values) where the view is the wave.

        Where the waves are part of a batch, what was drawn is that of the part; the sounds in the background and the
        mean of all views are then those of the whole batch.
        """
        waves = waves if self.trim is None else self.trim(waves)
        if self.parts is not None:
            return self._of_spectrogram(self._stretched(waves, drawn), drawn, shard)[:, None]
        x, lengths = floats_of(waves)
        moved = self.speed != (1.0, 1.0)
        speed = drawn["speed"].to(x.device) if moved else None
        heard = lengths.double() / speed if speed is not None else lengths.double()
        free = (heard - self.values).to(torch.float64)  # below 0 where the sound is shorter
        start = (drawn["place"].to(x.device) * (free.abs() + 1)).long() * free.sign().long()
        if self.ends:
            start.clamp_(min=0)
        if speed is not None:
            start = (start * speed).long()
        x = cut(x, start, self.values, speed)
        if self.gain != (0.0, 0.0):
            x = change_gain(x, drawn["gain"])
        if self.noisy:
            x = torch.where(drawn["noisy"].to(x.device)[:, None], add_noise(x, drawn["white"], drawn["noise"]), x)
        ends = heard.ceil().clamp(max=self.values)
        if self.level:
            x = leveled(x, ends)
        if self.ends:
            x = _over(x, ends)
        if self.mel is None:
            return x[:, None]
        return self._of_spectrogram((self.mel(x) - self.mean) / self.std, drawn, shard)[:, None]

    def _stretched(self, waves: Tensor, drawn: SoundViewParameters) -> Tensor:
        """(B, L) int16 to (B, mels, frames): of each sound's spectrogram a part, as long as a view."""
        assert self.mel is not None
        x, lengths = floats_of(waves)
        if self.gain != (0.0, 0.0):
            x = change_gain(x, drawn["gain"])
        if self.noisy:
            places = torch.arange(x.shape[1]) % self.values  # drawn before the lengths are known: repeated
            noisy = add_noise(x, drawn["white"][:, places], drawn["noise"], lengths)
            x = torch.where(drawn["noisy"].to(x.device)[:, None], noisy, x)
        spectrum = (self.mel(x, lengths) - self.mean) / self.std
        frames = self.mel.frames_of(lengths).double()
        extent = frames * drawn["part"].to(x.device)
        begin = drawn["place"].to(x.device) * (frames - extent)
        return stretch(spectrum, begin, extent, self.mel.frames(self.values))

    def _of_spectrogram(self, x: Tensor, drawn: SoundViewParameters, shard: Shard | None) -> Tensor:
        if self.mixup:
            every = x if shard is None else shard.gather(x)
            x = log_mixup_exp(x, every[drawn["other"].to(x.device)], drawn["ratio"])
        if self.resize is not None:
            x = resize_crop(x, drawn["boxes"])
        for number, (dim, most) in enumerate(((1, self.bands), (2, self.frames))):
            if most:
                extent = (drawn["stripes"][number] * (most + 1)).long().clamp(max=x.shape[dim])
                begin = (drawn["stripe places"][number] * (x.shape[dim] - extent + 1)).long()
                x = mask(x, begin, extent, dim=dim)
        if self.renormalize:
            x = _renormalized([x], shard)[0]
        return x


def _renormalized(views: Sequence[Tensor], shard: Shard | None) -> list[Tensor]:
    """The views, each (B, ...), by the mean and deviation of all their values together."""
    x = torch.cat([view.flatten(1) for view in views], 1)
    mean, deviation = (x.mean(), x.std()) if shard is None else _of_all(x, shard)
    return [(view - mean) / (deviation + LEAST_DEVIATION) for view in views]


def _of_all(x: Tensor, shard: Shard) -> tuple[Tensor, Tensor]:
    """Mean and deviation over the rows of all processes; rows are equally long."""
    mean = x.flatten(1).mean(1)
    squares = (x.flatten(1) - mean[:, None]).square().mean(1)
    means, variances = shard.gather(torch.stack([mean, squares], 1)).double().unbind(1)  # (total,), (total,)
    count = shard.total * x.shape[1:].numel()
    whole = means.mean()
    variance = (variances + (means - whole).square()).mean() * count / (count - 1)
    return whole.to(x.dtype), variance.sqrt().to(x.dtype)


def _own(drawn: SoundViewParameters, shard: Shard) -> SoundViewParameters:
    """What was drawn for the rows of one process."""
    return {name: shard.select(x, 1 if name.startswith("stripe") else 0) for name, x in drawn.items()}


def make_sound_views(
    waves: Tensor, views: Sequence[SoundView], *, seed: int, step: int, shard: Shard | None = None
) -> list[Tensor]:
    """The views of one training step: the same seed and step always give the same, on every device.

    Args:
        waves: (B, L) int16, -32768 behind the end of a sound.
        shard: of a batch that several processes share: the views are those that one process would make of all.
    """
    made = []
    for index, view in enumerate(views):
        drawn = view.draw(len(waves) if shard is None else shard.total, seeded_generator(seed, step, index))
        plain = replace(view, renormalize=False)
        made.append(plain.apply(waves, drawn if shard is None else _own(drawn, shard), shard))
    together = [index for index, view in enumerate(views) if view.renormalize]
    if together:
        for index, x in zip(together, _renormalized([made[i] for i in together], shard), strict=True):
            made[index] = x
    return made


@dataclass(frozen=True)
class SoundPreparation:
    """What an encoder's sounds go through outside of training, where nothing is left to chance.

    A sound shorter than a view is in the middle of silence; a longer one stays whole, with NaN behind its end, or is
    cut to the middle for encoders that take one length alone.

    Attributes:
        values: of a view.
        mel, mean, std: as in `SoundView`.
        level, trim: as there.
        whole: longer sounds stay whole.
    """

    values: int
    mel: LogMel | None = None
    mean: float = 0.0
    std: float = 1.0
    level: bool = False
    whole: bool = True
    trim: Trim | None = None

    @torch.no_grad()
    def __call__(self, waves: Tensor) -> Tensor:
        """(B, L) int16 to (B, 1, mels, frames) or (B, 1, values), NaN behind the end."""
        x, lengths = floats_of(waves if self.trim is None else self.trim(waves))
        free = lengths - self.values
        ends = lengths.clamp(min=self.values) if self.whole else lengths.new_full(lengths.shape, self.values)
        start = torch.where(free < 0, free, torch.zeros_like(free) if self.whole else free).div(
            2, rounding_mode="floor"
        )
        x = cut(x, start, int(ends.max()))
        if self.mel is None:
            return _over(leveled(x, torch.minimum(lengths, ends)) if self.level else x, ends)[:, None]
        frames = self.mel.frames_of(ends)
        return _over((self.mel(x, ends) - self.mean) / self.std, frames)[:, None]

    def words(self) -> str:
        """For who writes it in another language."""
        cut_off = "" if self.trim is None else f"quiet ends cut off ({self.trim.words()}); "
        if self.mel is None:
            level = ", divided by the root of their mean square" if self.level else ""
            short = f"sounds of fewer than {self.values} values in the middle of zeros"
            return f"one channel in [-1, 1]{level}; {cut_off}{short}"
        mel = self.mel
        normalised = (
            "each band minus its mean over the frames that are not silent, all divided by their deviation, silence 0"
            if mel.centred
            else "minus mean, divided by std"
        )
        floor = f"{mel.floor:g}" if mel.range_db is None else f"its maximum * 10 ** -{mel.range_db / 10:g}"
        return (
            f"one channel at {mel.sample_rate} Hz in [-1, 1]; {cut_off}sounds of fewer than {self.values} values in "
            f"the middle of zeros; log(librosa.feature.melspectrogram(n_fft={mel.window}, hop_length={mel.hop}, "
            f"n_mels={mel.n_mels}, fmin={mel.f_min:g}, fmax={mel.f_max:g}) + {floor}); {normalised}"
        )


def _over(x: Tensor, ends: Tensor) -> Tensor:
    """(B, ..., T) with NaN from each one's end on."""
    behind = torch.arange(x.shape[-1], device=x.device) >= ends[:, None]  # (B, T)
    return x.masked_fill_(behind.view(len(x), *[1] * (x.ndim - 2), -1), torch.nan) if bool(behind.any()) else x


@torch.no_grad()
def jittered(waves: Tensor, generator: torch.Generator, *, lead: int = 800, decibels: float = 6.0) -> Tensor:
    """(B, L) int16 to (B, L + lead) int16: a little later, a little louder or softer, for training on labels."""
    later = torch.randint(lead + 1, (len(waves),), generator=generator)
    gain = decibels * (2 * torch.rand(len(waves), generator=generator, dtype=torch.float64) - 1)
    x, lengths = floats_of(waves)
    x = change_gain(cut(x, -later, waves.shape[1] + lead), gain).clamp_(-1, 1)
    behind = torch.arange(x.shape[1], device=x.device) >= (lengths + later.to(x.device))[:, None]
    return (x * 32_767).round_().to(torch.int16).masked_fill_(behind, -32_768)
