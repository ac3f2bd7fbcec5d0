"""How data are read: the settings that `train`, `evaluate`, `embed` and the Python readers share. Needs no torch."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from nearfar.settings import check_settings, setting

LARGEST_SIDE = 8192  # pixels; a batch of larger images is a mistake


@dataclass(frozen=True, kw_only=True)
class ReadConfig:
    """How samples are read, beyond the name or path itself."""

    stored_size: int | None = setting(
        None, "side of stored images in pixels; None: a little more than the views need", least=1, most=LARGEST_SIDE
    )
    labels: bool | Literal["leaf", "top", "path"] | None = setting(
        None,
        "folders as labels: leaf (the last one above a file), top (the first), path (all), true (top, or leaf of a "
        "single top folder); false: read no labels; None: folders are labels if they look like classes",
    )
    path_column: str | None = setting(None, "table column with the path of each sample")
    label_column: str | None = setting(None, "table column with the label")
    group_column: str | None = setting(
        None, 'table column with the group; samples of one group are never negatives of each other; "": none'
    )
    caption_column: str | None = setting(None, "table column with the caption of an image")
    text_column: str | None = setting(None, "table column with the sentence")
    positive_column: str | None = setting(None, "table column with the positive sentence")
    negative_column: str | None = setting(None, "table column with the negative sentence")
    pattern: str | None = setting(
        None, "pattern of sound file names, such as {label}_{speaker}_{take}: braces become columns"
    )
    held_out: str | None = setting(
        None, "rows of a table or pattern held out for the test, such as speaker=theo,george"
    )
    groups_file: str | None = setting(
        None,
        "table with columns path and group, as `nearfar doctor` writes it; samples of one group are never negatives of "
        "each other, those with yes in a column drop are left out",
    )
    root: str | None = setting(None, "folder that the paths of a table start from; None: the table's own folder")
    stream: bool = setting(False, "decode at every epoch instead of packing once")
    strict: bool = setting(False, "stop at a broken file instead of skipping it")
    workers: int | None = setting(None, "threads that decode; None: all cores")

    def __post_init__(self) -> None:
        check_settings(self, "data")
        if self.held_out is not None and not re.fullmatch(r"[^=!]+=.+", self.held_out):
            raise ValueError(f"data.held_out is {self.held_out!r}, expected COLUMN=VALUE or COLUMN=VALUE,VALUE")

    @property
    def training_rows(self) -> str | None:
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

    main_key: ClassVar[str] = "path"

    path: str = setting("glyphs", "built-in data, a folder, a table, arrays, or a torchvision data set by name")
    test: str | None = setting(
        None, "data of the final evaluation; None: the data's own test part, or the validation samples"
    )
    validation: float = setting(
        0.1, "fraction of the training data held out for validation, at most 2,000 samples", least=0, below=1
    )
    positive_score: float | None = setting(
        None,
        "pairs of texts with at least this score are positives, others left out; None: scored pairs are not positives",
    )
    shuffle_window: int = setting(10_000, "shuffle window in samples of streamed shards", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path.strip():
            raise ValueError(f"data.path is {self.path!r}, which is empty; expected the name of a data set or a path")


@dataclass(frozen=True)
class EvaluationData(ReadConfig):
    """How the data of an evaluation are read."""

    main_key: ClassVar[str] = "path"

    path: str | None = setting(
        None,
        "labelled data; for detection VOC's XML, COCO's JSON or glyph-scenes; None: the test part of the run's own "
        "data, or its validation part",
    )
    test: str | None = setting(None, "other data to test on; None: the data's own split")
