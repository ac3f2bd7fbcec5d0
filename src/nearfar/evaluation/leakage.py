"""Notes on what an encoder was trained on, beside the numbers of its evaluation."""

from pathlib import Path

import numpy as np

from nearfar.config import TrainConfig
from nearfar.data import tables
from nearfar.data.config import ReadConfig
from nearfar.data.dataset import Dataset
from nearfar.data.rows import Wanted
from nearfar.data.sample_ids import SampleIds, sample_ids
from nearfar.data.sources import folder_splits, is_folder, walk
from nearfar.data.tables import READERS, path_and_rows
from nearfar.methods import known_method
from nearfar.modalities.splits import table_splits


def training_notes(
    config: TrainConfig,
    data: str | None,
    test: str | None,
    split: str,
    *,
    reading: ReadConfig | None = None,
    noun: str = "samples",
    tested: Dataset | None = None,
    trained: SampleIds | None = None,
) -> list[str]:
    """Was the encoder trained on the samples, or with the labels, that it is tested on?

    Texts are compared, and names below the same folder or in the same table; else paths, those that tables list
    included. Copies elsewhere are not found.

    Args:
        config: of the run that trained it.
        data, test: what it is evaluated on; data None: the run's own test part, which it was not trained on.
        split: name of the test part: "held-out", "all", or of a part that the data have themselves.
        reading: how the evaluation reads its data, such as the rows that it holds out.
        noun: plural of the samples.
        tested: the test part.
        trained: which samples the run recorded as its training part.
    """
    method, reading = known_method(config.method), reading or ReadConfig()
    if data is not None:
        count = None if tested is None else _count(config, test or data, split, reading, tested, trained)
        share = _share(config, data, test, split, reading) if count is None else _in_words(count)
        if share is not None:
            labels = "with" if method.needs_labels else "without"
            captions = " and with their captions" if method.uses_captions else ""
            exact = f" ({count[0]:,} of {count[1]:,})" if count is not None and share else ""
            return [f"the encoder was trained on {share}these {noun}{exact}, {labels} their labels{captions}"]
    if method.needs_labels:
        return [
            f"{config.method} learned from the labels of {config.data.path}: compare it with other supervised methods"
        ]
    return []


def _same_names(config: TrainConfig, tested: str, split: str, reading: ReadConfig) -> bool:
    """Whether samples of the run and of the tested data have the same names: paths below one folder or table."""
    read, own = config.data, folder_splits(config.data.path)
    learned, place = (Path(path_and_rows(each)[0]).expanduser().resolve() for each in (read.path, tested))
    if own is not None and read.groups_file is None and read.held_out is None:
        learned = learned / own[0]
    if is_folder(place / split):
        place = place / split
    return learned == place and (read.path_column, read.folder) == (reading.path_column, reading.folder)


def _count(
    config: TrainConfig, data: str, split: str, reading: ReadConfig, tested: Dataset, trained: SampleIds | None
) -> tuple[int, int] | None:
    """How many of the tested samples the run was trained on, and of how many; None if that is not known."""
    if trained is None or (tested.texts is None and not _same_names(config, data, split, reading)):
        return None
    ids = sample_ids(tested)
    return None if ids is None else (int(np.isin(ids, trained).sum()), len(ids))


def _in_words(count: tuple[int, int]) -> str | None:
    some, every = count
    return None if some == 0 else "" if some == every else "some of "


def _share(config: TrainConfig, data: str, test: str | None, split: str, reading: ReadConfig) -> str | None:
    """How much of the test part it was trained on, as the words before "these"; None if nothing is known of it."""
    read, own = config.data, folder_splits(config.data.path)
    learned, place = (Path(each).expanduser().resolve() for each in (config.data.path, test or data))
    same = config.data.path == (test or data) or (learned == place and place.exists())
    if same and read.held_out != reading.held_out:
        return "some of "  # all rows but those held out in training
    if own is not None and read.groups_file is None and read.held_out is None:
        learned = learned / own[0]
    if (place / split).is_dir():
        place = place / split
    elif test is None and split not in ("held-out", "all") and (same or not _is_table(data)):
        return None  # a part that the data have themselves
    if not same and (_is_table(config.data.path) or _is_table(test or data)):
        tested_rows = None if split in ("held-out", "all") else reading.held_out or split
        return _share_of_files(
            listed_files(config.data.path, read, _training_rows(config)) or learned,
            listed_files(test or data, reading, tested_rows if test is None else None) or place,
        )
    if not (learned.exists() and place.exists()):
        return "" if same else None
    if place.is_relative_to(learned):
        return ""
    return "some of " if learned.is_relative_to(place) else None


def _is_table(spec: str) -> bool:
    file = Path(path_and_rows(spec)[0]).expanduser()
    return file.suffix.lower() in READERS and file.is_file()


def _training_rows(config: TrainConfig) -> str | None:
    """The rows of a table that a run trains on, as a split; None: all."""
    own = table_splits(config.data.path)
    return config.data.training_rows or (own[0] if own is not None else None)


def listed_files(spec: str, reading: ReadConfig, split: str | None) -> frozenset[Path] | None:
    """The files that a table lists, resolved; None for what is no table, or one without a column of paths.

    Args:
        split: rows that are meant, unless `spec` says which.
    """
    if not _is_table(spec):
        return None
    file, rows = path_and_rows(spec)
    path = Path(file).expanduser().absolute()
    try:
        found = tables.read(path, Wanted(path=reading.path_column, labels=False, captions=False, split=rows or split))
    except (ValueError, OSError):  # a table of texts or series, or one that has gone or changed since
        return None
    return frozenset(((reading.folder or path.parent) / name).resolve() for name in found.names)


def _share_of_files(learned: frozenset[Path] | Path, tested: frozenset[Path] | Path) -> str | None:
    """How much of the tested files were trained on, each given as a list of files or as a folder."""
    if isinstance(tested, Path):
        if isinstance(learned, Path) or not is_folder(tested):
            return None
        suffixes = frozenset(file.suffix.lower() for file in learned)
        tested = frozenset(file.resolve() for file in walk(tested, suffixes))
    if isinstance(learned, Path):
        both = sum(file.is_relative_to(learned) for file in tested) if is_folder(learned) else 0
    else:
        both = len(learned & tested)
    return _in_words((both, len(tested)))
