"""How data are read: the settings that `train`, `evaluate`, `embed` and the Python readers share. Needs no torch."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

LARGEST_SIDE = 8192  # pixels; a batch of larger images is a mistake


@dataclass(frozen=True)
class ReadConfig:
    """How samples are read, beyond the name or path itself."""

    size: int | None = None  # side of the stored image; None: a little more than the views need
    labels: bool | None = None  # true: sub-folders are labels, as they are not unless asked for; false: none are read
    path_column: str | None = None  # table column with the path of each sample
    label_column: str | None = None  # table column with the label
    group_column: str | None = None  # table column with the group: never negatives of each other; "": none
    caption_column: str | None = None  # table column with the caption of an image
    text_column: str | None = None  # table column with the sentence
    partner_column: str | None = None  # table column with the positive sentence
    negative_column: str | None = None  # table column with the negative sentence
    pattern: str | None = None  # pattern of sound file names, such as {label}_{speaker}_{take}: braces become columns
    held_out: str | None = None  # rows of a table or pattern kept for the test, such as speaker=theo,george
    groups: str | None = None  # table of path and group, as `nearfar doctor` writes it: one group, never negatives
    root: str | None = None  # folder that the paths of a table start from; None: the table's own folder
    stream: bool = False  # decode at every epoch instead of packing once
    strict: bool = False  # stop at a broken file instead of skipping it
    workers: int | None = None  # threads that decode; None: all cores

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= LARGEST_SIDE:
            raise ValueError(f"sources.size is {self.size}, expected at least 1 pixel, at most {LARGEST_SIDE:,}")
        if self.held_out is not None and not re.fullmatch(r"[^=!]+=.+", self.held_out):
            raise ValueError(f"sources.held_out is {self.held_out!r}, expected COLUMN=VALUE or COLUMN=VALUE,VALUE")

    @property
    def kept(self) -> str | None:
        """The split of the rows that are not held out."""
        return None if self.held_out is None else self.held_out.replace("=", "!=", 1)

    @property
    def folder(self) -> Path | None:
        """`root` as a path."""
        return None if self.root is None else Path(self.root).expanduser().absolute()


def read_config(read: ReadConfig | None, settings: dict[str, Any]) -> ReadConfig:
    """The settings given as an object, as keywords, or both."""
    return replace(read or ReadConfig(), **settings)


@dataclass(frozen=True)
class DataConfig(ReadConfig):
    """Where the samples of a run come from."""

    validation: float = 0.1  # fraction of the training data held out, at most 2,000 samples
    test: str | None = None  # data of the final evaluation; None: the data's own test part, or the validation samples
    shuffle: int = 10_000  # shuffle window in samples for streamed shards; shards are shuffled, too

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shuffle < 0:
            raise ValueError(f"sources.shuffle is {self.shuffle}, expected at least 0")
        if not 0 <= self.validation < 1:
            raise ValueError(f"sources.validation is {self.validation}, expected a fraction from 0 to below 1")
