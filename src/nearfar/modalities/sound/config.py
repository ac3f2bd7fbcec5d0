"""Settings of runs on sounds. Needs no torch."""

from dataclasses import dataclass
from typing import Literal

from nearfar.settings import check_settings, setting

_HOUR = 3600.0


@dataclass(frozen=True)
class SoundConfig:
    """How sounds are cut and become spectrograms; the defaults are BYOL-A's."""

    sample_rate: int = setting(16_000, "Hz; every file is resampled to it", least=100, most=384_000)
    crop_seconds: float = setting(
        0.95, "length of a view; shorter sounds are padded with silence", above=0, below=_HOUR
    )
    max_seconds: float = setting(10.0, "seconds read of each sound, from its start", above=0, below=_HOUR)
    n_mels: int = setting(64, "mel bands of the spectrogram", least=1, most=4096)
    window_seconds: float = setting(0.064, "length of a spectrogram frame", above=0, below=_HOUR)
    hop_seconds: float = setting(0.01, "time from one frame to the next", above=0, below=_HOUR)
    f_min: float = setting(60.0, "lowest frequency of the mel bands in Hz", least=0)
    f_max: float | None = setting(
        None, "highest frequency of the mel bands in Hz; None: 7,800 at 16 kHz, in proportion at other rates", above=0
    )
    normalize: Literal["data", "sound"] = setting(
        "data", "by mean and deviation of the training data, or of each sound"
    )
    range_db: float | None = setting(
        None,
        'with normalize "sound": dB below the loudest value of each sound down to which energy is heard; None: down to '
        "a fixed floor",
        above=0,
        most=300,
    )
    trim_db: float | None = setting(
        None,
        "cut off beginning and end that are this many dB below the loudest moment; None: keep them",
        above=0,
        most=300,
    )
    mean: float | None = setting(
        None, 'mean of the log-mels, for normalize "data"; None: measured on the training data'
    )
    std: float | None = setting(None, "standard deviation of the log-mels")

    def __post_init__(self) -> None:
        check_settings(self, "sound")
        if self.crop_seconds > self.max_seconds:
            raise ValueError(f"sound.crop_seconds is {self.crop_seconds}, above sound.max_seconds, {self.max_seconds}")
        if self.range_db is not None and self.normalize != "sound":
            raise ValueError(f"sound.range_db is {self.range_db}, but sound.normalize is {self.normalize!r}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("only one of sound.mean and sound.std is given, expected both or neither")
