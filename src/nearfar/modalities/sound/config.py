"""Settings of runs on sounds. Needs no torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SoundConfig:
    """How sounds become waves and spectrograms; the defaults are BYOL-A's."""

    rate: int = 16_000  # values a second, to which every file is brought
    seconds: float = 0.95  # of a view; shorter sounds are put into silence
    longest: float = 10.0  # seconds of a sound that are looked at; of a longer one the first
    mels: int = 64  # bands of the spectrogram
    window: float = 0.064  # seconds of a frame
    hop: float = 0.01  # seconds from one frame to the next
    low: float = 60.0  # Hz, the lowest of the bands
    high: float | None = None  # Hz, the highest; None: 7,800 at 16 kHz, and in that proportion
    normalize: Literal["data", "sound"] = "data"  # by the training data's mean and deviation, or each sound by its own
    mean: float | None = None  # of the log-mels, for "data"; None: measured on the training data
    std: float | None = None  # standard deviation of the log-mels

    def __post_init__(self) -> None:
        for name in ("seconds", "longest", "window", "hop"):
            if not 0 < getattr(self, name) < 3600:
                raise ValueError(f"sound.{name} is {getattr(self, name)}, expected seconds above 0")
        if not 100 <= self.rate <= 384_000:
            raise ValueError(f"sound.rate is {self.rate}, expected values a second, such as 16000")
        if self.seconds > self.longest:
            raise ValueError(f"sound.seconds is {self.seconds}, more than sound.longest, {self.longest}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("of sound.mean and sound.std one is given, expected both or neither")
        if not 1 <= self.mels <= 4096:
            raise ValueError(f"sound.mels is {self.mels}, expected at least 1, at most 4,096")
