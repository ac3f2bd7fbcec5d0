"""Which samples are for training, validation and test: decided here, for training and for evaluation."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nearfar.data.class_folders import ClassFolders, class_folders, split_names
from nearfar.data.config import DataConfig
from nearfar.data.dataset import Dataset, counted
from nearfar.data.groups import held_out, with_groups
from nearfar.data.rows import SPLITS, usual_column
from nearfar.data.sources import TEST_FOLDERS, is_folder, walk
from nearfar.data.tables import READERS, path_and_rows, read_columns
from nearfar.modalities.base import Modality, Splits

MAX_VALIDATION = 2000  # samples held out of the training part
MIN_VALIDATION = 8  # fewer say nothing
TEST_FRACTION = 0.2  # of each class, held out for the test if the data have no split of their own


def run_splits(modality: Modality) -> Splits:
    """The parts of a run's data: what it trains on, validates on and is tested on."""
    config, read = modality.config, modality.config.data
    everything, test, name, notes = _own_parts(modality, config.data.path)
    everything = modality.for_training(everything)
    if read.groups_file is not None:
        if not modality.walks_folders:
            raise ValueError(
                f"data.groups_file is for files; a table of {modality.noun} names groups in a column 'group'"
            )
        everything = with_groups(everything, read.groups_file)
    if read.test is not None:
        other = modality.own_splits(read.test)
        test, name = modality.open(read.test, other and other[1]), "test"
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(config.seed))
    count = min(MAX_VALIDATION, int(read.validation * len(everything)))
    out = held_out(everything.groups, order, count) if count >= MIN_VALIDATION else torch.zeros(0)
    if int(out.sum()) < MIN_VALIDATION:  # too few, or one group is almost everything
        return Splits(everything, None, test, name, notes, everything)
    train, validation = everything.subset((~out).nonzero()[:, 0]), everything.subset(out.nonzero()[:, 0])
    return Splits(train, validation, test, name, notes, everything)


def evaluation_splits(modality: Modality, data: str, test: str | None, *, seed: int) -> Splits:
    """The parts of any data: their own split, or a fifth of each class held out by the seed."""
    modality = modality.reading(with_folder_labels(modality.config.data, data, modality.suffixes))
    train, tested, name, notes = _own_parts(modality, data)
    if test is not None:
        other = modality.own_splits(test)
        reading = modality.reading(replace(modality.config.data, held_out=None))
        return Splits(train, None, reading.open(test, other and other[1]), "test", notes)
    if tested is not None:
        return Splits(train, None, tested, name, notes)
    if train.labels is None and train.scores is not None:
        note = f"nothing is fitted: all {len(train):,} pairs of {data} are compared"
        return Splits(train, None, train, "all", [*notes, note])
    labels = train.labels if train.labels is not None else torch.zeros(len(train), dtype=torch.long)
    rest, out = stratified_split(labels, share=TEST_FRACTION, seed=seed)
    if len(out) == 0:
        raise ValueError(f"{data} has {counted(len(train), 'sample')}, too few to hold some out; give others as test")
    fifth = "a fifth of each class" if train.labels is not None else "a fifth"
    note = f"{data} has no split of its own: {len(out)} {modality.noun}, {fifth}, were held out by seed {seed}"
    return Splits(train.subset(rest), None, train.subset(out), "held-out", [*notes, note])


def _own_parts(modality: Modality, data: str) -> tuple[Dataset, Dataset | None, str, list[str]]:
    """The data but its test part, its test part if it has one, the name of that, and notes."""
    read, own = modality.config.data, modality.own_splits(data)
    if read.held_out is not None:
        return modality.open(data, read.training_rows), modality.open(data, read.held_out), "test", []
    if own is None:
        return modality.open(data), None, "test", []
    if read.groups_file is not None and is_folder(
        Path(data).expanduser() / own[1]
    ):  # its names are of the whole folder
        note = f"{data} has {own[0]}/ and {own[1]}/, and both are for training, as --data.groups_file is of both"
        return modality.open(data), None, "test", [note]
    return modality.open(data, own[0]), modality.open(data, own[1]), own[1], []


def with_folder_labels(read: DataConfig, data: str, suffixes: frozenset[str]) -> DataConfig:
    """For evaluation the sub-folders of a folder are its labels, if nothing else says what they are."""
    folder = Path(data).expanduser()
    if read.labels is not None or read.pattern is not None or not folder.is_dir():
        return read
    found = folder_classes(data, suffixes)
    return read if found is None else replace(read, labels=found.level)


def folder_classes(data: str, suffixes: frozenset[str]) -> ClassFolders | None:
    """The classes that the sub-folders of a folder stand for; None where they stand for none."""
    folder = Path(data).expanduser()
    if not is_folder(folder):
        return None
    names = [path.relative_to(folder).as_posix() for path in walk(folder, suffixes)]
    return class_folders(names, split_names(folder).values())


def table_splits(spec: str) -> tuple[str, str] | None:
    """The training and the test part, if a table has a column "split" with both."""
    path, rows = path_and_rows(spec)
    file = Path(path).expanduser()
    if rows is not None or file.suffix.lower() not in READERS or not file.is_file():
        return None
    columns = read_columns(file)
    column = usual_column(columns, SPLITS)
    there = set(map(str, columns[column])) if column is not None else set()
    test = next((name for name in TEST_FOLDERS if name in there), None)
    return ("train", test) if test is not None and "train" in there else None


def stratified_split(labels: Tensor, *, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Row numbers of a larger and a smaller part, in which each class has its share; a class of one stays in the first.

    Args:
        labels: (M,) integers.
        share: of each class in the smaller part, from 0 to below 1; at least one row of a class of two or more.
        seed: of the draw.

    >>> larger, smaller = stratified_split(torch.tensor([0, 0, 0, 0, 1, 1, 2]), share=0.5, seed=0)
    >>> len(larger), len(smaller), 6 in larger
    (4, 3, True)
    """
    if not 0 <= share < 1:
        raise ValueError(f"share is {share:g}, expected at least 0 and below 1")
    generator = torch.Generator().manual_seed(seed)
    labels = labels.cpu()
    shuffled = torch.randperm(len(labels), generator=generator)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        rows = shuffled[labels[shuffled] == label]
        wanted = min(len(rows) - 1, max(1, round(share * len(rows)))) if share else 0
        held[rows[:wanted]] = True
    return (~held).nonzero()[:, 0], held.nonzero()[:, 0]
