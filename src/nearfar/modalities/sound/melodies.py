"""Built-in sounds made by code: short melodies whose class is their contour, in any key, tempo, timbre and noise."""

import math
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.data.cache import cached_array
from nearfar.modalities.sound.data import SoundDataset

Split = Literal["train", "test"]
RATE = 8000
VERSION = 1  # part of the cache's key; raise it when the same seed gives other sounds

# A melody is the same four notes in an order of its own: "1324" begins with the lowest, then comes the third. So what
# is averaged over time tells nothing of the class.
NOTES = (0, 4, 7, 12)  # semitones above the lowest
CLASSES = ["1234", "1324", "1432", "2143", "2413", "3142", "3412", "4123", "4231", "4321"]


class Instrument(NamedTuple):
    """How a note sounds."""

    slope: float  # the k-th harmonic has amplitude k ** -slope
    even: float  # part of the even harmonics that is there
    attack: float  # seconds
    decay: float  # seconds in which it falls to 1 / e


TRAIN_INSTRUMENTS = (
    Instrument(0.8, 1.0, 0.005, 0.15),
    Instrument(2.0, 1.0, 0.02, 0.5),
    Instrument(1.0, 0.0, 0.02, 0.6),
    Instrument(1.5, 0.3, 0.005, 0.1),
    Instrument(0.5, 0.6, 0.03, 0.4),
    Instrument(3.0, 1.0, 0.01, 0.3),
    Instrument(1.2, 0.8, 0.04, 1.0),
    Instrument(2.5, 0.0, 0.005, 0.2),
)
TEST_INSTRUMENTS = (
    Instrument(1.8, 0.0, 0.01, 0.25),
    Instrument(0.6, 0.2, 0.02, 0.3),
    Instrument(1.0, 1.0, 0.03, 0.8),
    Instrument(2.2, 0.6, 0.005, 0.12),
)
HARMONICS = 8
LOWEST, KEYS = 220.0, 18.0  # Hz of the lowest key, and semitones that keys may lie above it
NOTE = (0.09, 0.15)  # seconds
BEFORE, AFTER = (0.0, 0.2), (0.02, 0.15)  # seconds of noise alone
SNR = (8.0, 30.0)  # dB
PEAK = (0.1, 0.9)  # of the loudest value


class MelodySpec(NamedTuple):
    """What a melody will be, before a value of it is made."""

    contour: int
    instrument: Instrument
    key: float  # Hz of the lowest note
    note: int  # values of a note
    before: int  # values
    length: int
    snr: float
    peak: float

    def caption(self) -> str:
        """What is heard: tempo, register and contour."""
        tempo = _third(self.note / RATE, NOTE, ("fast", "steady", "slow"))
        register = _third(12 * math.log2(self.key / LOWEST), (0.0, KEYS), ("deep", "middle", "bright"))
        return f"a {tempo} tune in a {register} voice: {CLASSES[self.contour]}"


def _third(value: float, limits: tuple[float, float], words: tuple[str, str, str]) -> str:
    part = (value - limits[0]) / (limits[1] - limits[0])
    return words[min(2, max(0, int(3 * part)))]


def melodies(
    n: int = 4000, *, seed: int = 0, split: Split = "train", longest: int | None = None, cache: Path | None = None
) -> SoundDataset:
    """n melodies of four notes at 8 kHz, some 0.4 to 1 s long, labelled with their contour, each with
    a caption that also says tempo and register.

    Key, tempo, instrument, loudness, noise and the time at which the melody begins are chance. Sample i depends on
    (seed, split, i) alone, not on n. The test split is played on other instruments. What log-mels are on average over
    time knows nothing of the contour (k-NN about 10 % of 10), so what is learned shows.

    Args:
        longest: as in `SoundDataset`.
        cache: folder to keep the sounds in; made anew where None.

    >>> data = melodies(3, seed=1)
    >>> len(data), data.sample_rate, data.classes[:3]
    (3, 8000, ['1234', '1324', '1432'])
    """
    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1 melody")
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}, expected 'train' or 'test'")
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected at least 0")
    generators = [np.random.default_rng((seed, split == "test", i)) for i in range(n)]
    plans = [planned(rng, split) for rng in generators]
    lengths = np.array([plan.length for plan in plans], np.int64)

    def play() -> NDArray[np.int16]:
        return np.concatenate([played(plan, rng) for plan, rng in zip(plans, generators, strict=True)])

    return SoundDataset(
        play() if cache is None else cached_array(cache / "melodies" / f"{split}-{n}-{seed}-{VERSION}", play),
        lengths.cumsum() - lengths,
        lengths,
        sample_rate=RATE,
        longest=longest,
        labels=torch.tensor([plan.contour for plan in plans]),
        classes=CLASSES,
        captions=[(plan.caption(),) for plan in plans],
    )


def planned(rng: np.random.Generator, split: Split) -> MelodySpec:
    """Chance as choices."""
    instruments = TRAIN_INSTRUMENTS if split == "train" else TEST_INSTRUMENTS
    u = rng.random(8)
    contour, note = int(u[0] * len(CLASSES)), int(RATE * between(NOTE, u[3]))
    before, after = int(RATE * between(BEFORE, u[4])), int(RATE * between(AFTER, u[5]))
    return MelodySpec(
        contour,
        instruments[int(u[1] * len(instruments))],
        LOWEST * 2 ** (KEYS * u[2] / 12),
        note,
        before,
        before + len(NOTES) * note + after,
        between(SNR, u[6]),
        between(PEAK, u[7]),
    )


def between(limits: tuple[float, float], u: float) -> float:
    return limits[0] + (limits[1] - limits[0]) * float(u)


def played(plan: MelodySpec, rng: np.random.Generator) -> NDArray[np.int16]:
    """(length,)."""
    instrument, time = plan.instrument, np.arange(plan.note) / RATE
    envelope = np.minimum(time / instrument.attack, 1) * np.exp(-time / instrument.decay)
    envelope *= np.minimum((time[-1] - time) / 0.01, 1)  # no click where the note ends
    x = np.zeros(plan.length)
    for number, rank in enumerate(CLASSES[plan.contour]):
        pitch = plan.key * 2 ** (NOTES[int(rank) - 1] / 12)
        phases = rng.random(HARMONICS)
        start = plan.before + number * plan.note
        for k in range(1, HARMONICS + 1):
            if k * pitch < 0.45 * RATE:
                loud = k**-instrument.slope * (instrument.even if k % 2 == 0 else 1.0)
                wave = np.sin(2 * np.pi * (k * pitch * time + phases[k - 1]))
                x[start : start + plan.note] += loud * envelope * wave
    power = np.square(x[plan.before : plan.before + len(NOTES) * plan.note]).mean()
    x += rng.standard_normal(plan.length) * np.sqrt(power / 10 ** (plan.snr / 10))
    return np.asarray(np.round(x * (32_767 * plan.peak / np.abs(x).max())), np.int16)
