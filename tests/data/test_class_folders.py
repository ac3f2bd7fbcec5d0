"""Folders as labels: which level, and which folders are splits."""

from pathlib import Path

import pytest
from PIL import Image

from nearfar.config import completed
from nearfar.data.class_folders import class_folders, split_names
from nearfar.data.sources import folder_splits, split_folder
from nearfar.modalities.image.data.opening import find_images


def photos(folder: Path, *places: str) -> Path:
    for place in places:
        for number in range(2):
            file = folder / place / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), "red").save(file)
    return folder


@pytest.mark.parametrize(
    ("level", "classes"),
    [("top", ["pets", "wild"]), ("leaf", ["cat", "dog", "fox"]), ("path", ["pets/cat", "pets/dog", "wild/fox"])],
)
def test_labels_of_nested_folders(tmp_path: Path, level: str, classes: list[str]) -> None:
    data = photos(tmp_path, "pets/cat", "pets/dog", "wild/fox")
    assert find_images(data, labels=level).classes == classes


@pytest.mark.parametrize("splits", [("train", "test"), ("Train", "VAL"), ("training", "testing")])
def test_splits_are_never_labels(tmp_path: Path, splits: tuple[str, str]) -> None:
    data = photos(tmp_path, *(f"{split}/{name}" for split in splits for name in ("cat", "dog")))
    assert find_images(data, labels=True).classes == ["cat", "dog"]
    assert folder_splits(data) == splits
    assert split_folder(data, "train").name == splits[0]
    assert len(split_names(data)) == 2


def test_a_class_may_be_called_test(tmp_path: Path) -> None:
    data = photos(tmp_path, "blood/a", "test/a")
    assert split_names(data) == {} and find_images(data, labels=True).classes == ["blood", "test"]


def test_class_folders_have_labels_without_a_flag_and_the_use_is_told(tmp_path: Path) -> None:
    data = photos(tmp_path, "cat", "dog")
    values = completed({"data": str(data)})
    assert values["data"]["labels"] == "top"
    assert any("data.labels" in note and "cat 2" in note for note in values["notes"])
    assert "labels" not in completed({"data": {"path": str(photos(tmp_path / "cat"))}})["data"]
    assert completed({"data": {"path": str(data), "labels": False}})["data"]["labels"] is False


def test_folders_that_are_no_classes_are_not_taken_for_some() -> None:
    assert class_folders(["a/1.jpg", "a/2.jpg"]) is None
    assert class_folders([f"{number}/1.jpg" for number in range(9)]) is None
    assert class_folders(["1.jpg", "2.jpg"]) is None
