"""Settings of runs on series. Needs no torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SeriesConfig:
    """How series are fed to their encoder."""

    normalize: Literal["series", "data"] = "series"  # by each series' own mean and deviation, or the training data's
    channels: int | None = None  # None: what the data have
    mean: list[float] | None = None  # of each channel, for "data"; None: measured on the training data
    std: list[float] | None = None  # the same of the deviation

    def __post_init__(self) -> None:
        if self.channels is not None and self.channels < 1:
            raise ValueError(f"series.channels is {self.channels}, expected at least 1")
        if (self.mean is None) != (self.std is None):
            raise ValueError("of series.mean and series.std one is given, expected both or neither")
        if self.std is not None and not all(0 < value < float("inf") for value in self.std):
            raise ValueError(f"series.std is {self.std}, expected numbers above 0")
