"""Which images with boxes are for training and which for the test."""

from collections.abc import Mapping
from pathlib import Path

import torch

from nearfar.data.sources import TEST_FOLDERS
from nearfar.modalities.base import Splits
from nearfar.modalities.image.data.annotations import Reader
from nearfar.modalities.image.data.boxes import BoxedImages, boxed_images, find_boxes
from nearfar.modalities.splits import TEST_FRACTION


def open_boxed_splits(
    data: str | Path, test: str | Path | None = None, *, size: int, seed: int = 0, progress: bool = False
) -> Splits:
    """The training and the test part of data with boxes, the test part with the training part's classes.

    The notes say what was wrong with them.

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
        split, share = "held-out", max(1, round(TEST_FRACTION * len(train)))
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
    return Splits(train, None, tested, split, notes)


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
