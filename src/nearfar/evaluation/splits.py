"""Which images are for training and which for the test, from one name or path."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from nearfar.data.dataset import Dataset
from nearfar.data.sources import TEST_FOLDERS, is_folder, own_parts
from nearfar.evaluation.linear import stratified_split
from nearfar.modalities.image.data.annotations import Reader
from nearfar.modalities.image.data.boxes import BoxedImages, boxed_images, find_boxes
from nearfar.modalities.image.data.opening import has_splits, is_files, open_data

HELD_OUT = 0.2  # share of each class that is held out where the data have no split of their own


class Parts(NamedTuple):
    """Data for an evaluation."""

    train: Dataset
    test: Dataset
    split: str  # how the rows name the test part
    notes: list[str]


def named(data: str | Path, test: str | Path | None) -> str:
    """How the rows name the data: other data for the test are named, too.

    >>> named("photos", None), named("photos", "others")
    ('photos', 'photos, tested on others')
    """
    return str(data) if test is None else f"{data}, tested on {test}"


class BoxedParts(NamedTuple):
    """Data with boxes for an evaluation."""

    train: BoxedImages
    test: BoxedImages  # with the classes of the training part
    split: str
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
    strict: bool = False,
    progress: bool = True,
) -> Parts:
    """The training and the test part of a data set.

    Args:
        data: as `open_data` takes it. Its own split is used where it has one: built-in and torchvision's data, or a
            folder with train/ and one of test/, val/, valid/, validation/. Of anything else a fifth of each class is
            held out, drawn by the seed. The sub-folders of a folder are its labels.
        test: other data for the test part; then all of `data` is for training.
        size: side of the stored images; the data's own where None.
        seed: of the part held out.
        path_column, label_column, stream, strict, progress: as in `open_data`.
    """

    def opened(spec: str | Path, split: str | None, classes: Sequence[str] | None = None) -> Dataset:
        folder = Path(spec).expanduser().is_dir()
        return open_data(
            spec,
            size=size if is_files(spec) else None,  # others have a size of their own
            split=split,
            labels=_has_classes(Path(spec).expanduser() / (split or "")) if folder else None,
            classes=classes,
            path_column=path_column,
            label_column=label_column,
            stream=stream,
            strict=strict,
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
    fifth = "a fifth of each class" if everything.labels is not None else "a fifth"
    note = f"{data} has no split of its own: {len(held)} images, {fifth}, were held out by seed {seed}"
    return Parts(everything.subset(train), everything.subset(held), "held-out", [note])


def open_boxed_parts(
    data: str | Path, test: str | Path | None = None, *, size: int, seed: int = 0, progress: bool = False
) -> BoxedParts:
    """The training and the test part of data with boxes; what was wrong with them is told in the notes.

    Args:
        data: as `find_boxes` takes it. Its own split is used where it has one, else a fifth is held out by the seed.
        test: other data for the test part.
        size: most pixels of a picture's longer side.
        seed: of the part held out, and of scenes made by code.
        progress: show a bar while pictures are decoded.
    """
    found, notes = _readers(data, seed), []
    others = found if test is None else _readers(test, seed)
    held = next((split for split in TEST_FOLDERS if split in others), None)
    usual = ("trainval", "train") if test is not None or held == "test" else ("train", "trainval")
    name = next((split for split in usual if split in found), next(iter(found)))
    if test is not None:
        held = held or next(iter(others))
    elif held == name or (held, name) == ("val", "trainval"):  # one part alone, or one inside the other
        held = None
    train, faults = boxed_images(found[name](), size=size, progress=progress)
    notes += faults.notes("training")
    if not train.classes:
        raise ValueError(f"{data} has no usable box in its training part; {'; '.join(notes) or 'it is empty'}")
    if held is not None:
        split = held if test is None else "test"
        tested, faults = boxed_images(others[held](), size=size, classes=train.classes, progress=progress)
        notes += faults.notes(split)
    else:
        split, share = "held-out", max(1, round(HELD_OUT * len(train)))
        if len(train) < 2:
            raise ValueError(f"{data} has one picture, too few to hold some out; give others as test")
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
        train, tested = train.subset(order[share:].sort().values), train.subset(order[:share].sort().values)
        notes.append(f"{data} has no split of its own: {share} pictures, a fifth, were held out by seed {seed}")
        if lost := sorted(_kinds(tested) - _kinds(train)):
            names = ", ".join(train.classes[kind] for kind in lost)
            notes.append(f"all pictures of these classes were held out, so that they count as AP 0: {names}")
    if not any((~target.ignored).any() for target in tested.targets):
        raise ValueError(f"{test or data} has no usable box in its {split} part; {'; '.join(notes)}")
    return BoxedParts(train, tested, split, notes)


def _kinds(images: BoxedImages) -> set[int]:
    """The classes of boxes that count."""
    return {int(kind) for target in images.targets for kind in target.kinds[~target.ignored]}


def _readers(data: str | Path, seed: int) -> Mapping[str, Reader]:
    found = find_boxes(data, seed=seed)
    if not found:
        raise ValueError(
            f"there are no boxes in {str(data)!r}, expected a folder with VOC's XML or COCO's JSON, such a JSON file, "
            "or glyph-scenes"
        )
    return found


def _own_split(data: str | Path) -> tuple[str, str] | None:
    """The names of the two parts where the data have them."""
    if Path(data).expanduser().is_dir():
        return own_parts(data)
    return ("train", "test") if has_splits(data) else None


def _test_split(test: str | Path) -> str | None:
    own = _own_split(test)
    return own[1] if own is not None else None


def _has_classes(folder: Path) -> bool:
    """Whether a folder has sub-folders, whose names are then its labels."""
    return folder.is_dir() and any(is_folder(entry) and not entry.name.startswith(".") for entry in folder.iterdir())
