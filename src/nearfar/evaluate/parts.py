"""Which images are for training and which for the test, from one name or path."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from nearfar.data import Dataset, open_data
from nearfar.data.tables import READERS
from nearfar.data.torchvision_sets import known_name
from nearfar.evaluate.linear import stratified_split

TEST_FOLDERS = ("test", "val", "valid", "validation")
HELD_OUT = 0.2  # share of each class that is held out where the data have no split of their own


class Parts(NamedTuple):
    """Data for an evaluation."""

    train: Dataset
    test: Dataset
    split: str  # how the rows name the test part
    notes: list[str]


def open_parts(
    data: str | Path,
    test: str | Path | None = None,
    *,
    size: int | None = None,
    seed: int = 0,
    path_column: str | None = None,
    label_column: str | None = None,
    stream: bool = False,
    progress: bool = True,
) -> Parts:
    """The training and the test part of a data set.

    Args:
        data: as `open_data` takes it. Its own split is used where it has one: glyphs, a torchvision data set, or a
            folder with train/ and one of test/, val/, valid/, validation/. Of anything else a fifth of each class is
            held out, drawn by the seed. The sub-folders of a folder are its labels.
        test: other data for the test part; then all of `data` is for training.
        size: side of the stored images; the data's own where None.
        seed: of the part held out.
        path_column, label_column, stream, progress: as in `open_data`.
    """

    def opened(spec: str | Path, split: str | None, classes: Sequence[str] | None = None) -> Dataset:
        folder = Path(spec).expanduser().is_dir()
        return open_data(
            spec,
            size=size if folder or Path(spec).suffix.lower() in READERS else None,  # others have a size of their own
            split=split,
            labels=_has_classes(Path(spec).expanduser() / (split or "")) if folder else None,
            classes=classes,
            path_column=path_column,
            label_column=label_column,
            stream=stream,
            progress=progress,
        )

    own = _own_split(data)
    if test is not None:
        return Parts(opened(data, own and own[0]), opened(test, _test_split(test)), "test", [])
    if own is not None:
        return Parts(opened(data, own[0]), opened(data, own[1]), own[1], [])
    everything = opened(data, None)
    labels = everything.labels if everything.labels is not None else torch.zeros(len(everything), dtype=torch.long)
    train, held = stratified_split(labels, share=HELD_OUT, seed=seed)
    if len(held) == 0:
        raise ValueError(f"{data} has {len(everything)} images, too few to hold some out; give others as test")
    note = f"{data} has no split of its own: {len(held)} images, a fifth of each class, were held out by seed {seed}"
    return Parts(everything.subset(train), everything.subset(held), "held-out", [note])


def _own_split(data: str | Path) -> tuple[str, str] | None:
    """The names of the two parts where the data have them."""
    folder = Path(data).expanduser()
    if folder.is_dir():
        tests = [name for name in TEST_FOLDERS if (folder / name).is_dir()]
        return ("train", tests[0]) if tests and (folder / "train").is_dir() else None
    text = str(data)
    made = text.startswith(("glyphs", "torchvision:")) or (known_name(text) is not None and not folder.exists())
    return ("train", "test") if made else None


def _test_split(test: str | Path) -> str | None:
    own = _own_split(test)
    return own[1] if own is not None else None


def _has_classes(folder: Path) -> bool:
    """Whether a folder has sub-folders, whose names are then its labels."""
    return folder.is_dir() and any(entry.is_dir() and not entry.name.startswith(".") for entry in folder.iterdir())
