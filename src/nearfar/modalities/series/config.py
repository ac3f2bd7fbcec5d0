"""Settings of runs on series. Needs no torch."""

from dataclasses import dataclass
from typing import Literal

from nearfar.settings import check_settings, setting


@dataclass(frozen=True)
class SeriesConfig:
    """How series are normalized."""

    normalize: Literal["series", "data"] = setting(
        "series", "by each series' own mean and deviation, or by those of the training data"
    )
    channels: int | None = setting(None, "channels of a series; None: what the data have", least=1)
    length: int | None = setting(None, "steps of the longest series; None: what the training data have", least=1)
    mean: list[float] | None = setting(
        None, 'mean of each channel, for normalize "data"; None: measured on the training data'
    )
    std: list[float] | None = setting(None, "standard deviation of each channel", above=0, below=float("inf"))

    def __post_init__(self) -> None:
        check_settings(self, "series")
        if (self.mean is None) != (self.std is None):
            raise ValueError("only one of series.mean and series.std is given, expected both or neither")
