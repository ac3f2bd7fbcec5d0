"""The views of sounds by paper and by purpose."""

from collections.abc import Callable
from dataclasses import replace

from nearfar.modalities.sound.logmel import LogMel
from nearfar.modalities.sound.views import SoundView


def byol_a(values: int, mel: LogMel, *, mean: float = 0.0, std: float = 1.0) -> tuple[SoundView, ...]:
    """BYOL-A's two equal views: another sound in the background, and a box of the spectrogram resized.

    Deviation: the other sound is one of the same batch, where the authors keep the last 2,048 inputs; so a view depends
    on (seed, step) and on nothing before, and a run can be resumed.

    Reference: Niizumi et al. 2021, https://arxiv.org/abs/2103.06695
    """
    view = SoundView(values, mel, mean, std, mixup=0.4, resize=(0.6, 1.5), renormalize=True)
    return view, view


def simclr(values: int, mel: LogMel, *, mean: float = 0.0, std: float = 1.0) -> tuple[SoundView, ...]:
    """Two equal views for methods with negatives: crop, speed, gain, noise, a box resized, stripes masked.

    In the spirit of SimCLR's strong views; the choice is that of CLAR, with SpecAugment's stripes and BYOL-A's box.

    References: Al-Tahan and Mohsenzadeh 2021 (CLAR), https://arxiv.org/abs/2010.09542; Park et al. 2019,
    https://arxiv.org/abs/1904.08779
    """
    view = SoundView(
        values,
        mel,
        mean,
        std,
        speed=(0.9, 1.1),
        gain=(-6.0, 6.0),
        noise=(10.0, 40.0),
        noisy=0.5,
        resize=(0.6, 1.5),
        bands=mel.n_mels // 8,
        frames=mel.frames(values) // 8,
    )
    return view, view


def speech(values: int, mel: LogMel, *, mean: float = 0.0, std: float = 1.0) -> tuple[SoundView, ...]:
    """Two equal views of words: stretched or pressed in time, hardly in frequency, noisy, with stripes masked.

    A box that leaves out much of the spectrum, as BYOL-A's does, makes other vowels of vowels; what is left here of
    its height is what voices differ by. Stripes as in Park et al. 2019, https://arxiv.org/abs/1904.08779
    """
    view = SoundView(
        values,
        mel,
        mean,
        std,
        gain=(-6.0, 6.0),
        noise=(10.0, 40.0),
        noisy=0.5,
        resize=(0.7, 1.3),
        heights=(0.9, 1.0),
        bands=mel.n_mels // 5,
        frames=mel.frames(values) // 5,
    )
    return view, view


def whole(values: int, mel: LogMel, *, mean: float = 0.0, std: float = 1.0) -> tuple[SoundView, ...]:
    """Two equal views of short sounds, such as words: most of each, stretched to one length, noisy, stripes masked.

    What a word is, is an order in time: a view that begins and ends nearly where the sound does keeps it, at whatever
    tempo. Stripes as in Park et al. 2019, https://arxiv.org/abs/1904.08779
    """
    view = SoundView(
        values,
        mel,
        mean,
        std,
        parts=(0.7, 1.0),
        noise=(10.0, 40.0),
        noisy=0.5,
        bands=mel.n_mels // 5,
        frames=mel.frames(values) // 5,
    )
    return view, view


def cola(values: int, mel: LogMel, *, mean: float = 0.0, std: float = 1.0) -> tuple[SoundView, ...]:
    """Two crops of the sound, and nothing else: for recordings that are much longer than the crop.

    Reference: Saeed et al. 2021 (COLA), https://arxiv.org/abs/2010.10915
    """
    view = SoundView(values, mel, mean, std)
    return view, view


def cpc(values: int, mel: LogMel | None = None, *, mean: float = 0.0, std: float = 1.0) -> tuple[SoundView, ...]:
    """One crop of the wave: CPC's other view is what comes next, and of a sound that is over nothing comes.

    Reference: van den Oord et al. 2018, section 3.1, https://arxiv.org/abs/1807.03748
    """
    return (SoundView(values, ends=True),)


def local_view(view: SoundView, part: float = 0.4) -> SoundView:
    """The same of a shorter crop."""
    parts = None if view.parts is None else (part * view.parts[0], part * view.parts[1])
    return replace(view, values=max(1, round(part * view.values)), frames=round(part * view.frames), parts=parts)


def of_waves(view: SoundView, *, level: bool = False) -> SoundView:
    """What of a view is left where the encoder hears the wave itself."""
    off = {"mixup": 0.0, "parts": None, "resize": None, "heights": None, "bands": 0, "frames": 0, "renormalize": False}
    return replace(view, mel=None, level=level, **off)  # type: ignore[arg-type]


SOUND_PRESETS: dict[str, Callable[..., tuple[SoundView, ...]]] = {
    preset.__name__: preset for preset in (byol_a, cola, cpc, simclr, speech, whole)
}
