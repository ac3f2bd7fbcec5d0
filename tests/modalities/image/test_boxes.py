"""Boxes from VOC and COCO files: what is read, what is mended, what is left out, and that each is counted."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nearfar.evaluation.detection.splits import open_boxed_splits
from nearfar.modalities.image.data.annotations import Annotated, Annotations, find_annotations, read_coco, read_voc
from nearfar.modalities.image.data.boxes import boxed_images, find_boxes, fitted
from tests.support.boxes import blocks, coco, write_coco, write_voc, xml
from tests.support.facts import all_tell, facts, tells


def square(path: Path, side: int = 64) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((side, side, 3), 90, np.uint8)).save(path)


def counted(notes: list[str], expected: dict[str, int]) -> bool:
    """Whether the lines, such as "test part: boxes without area, dropped: 2 (first: a.xml)", have these counts."""
    numbers = [int(re.findall(r": (\d+)", note)[0]) for note in notes]
    return len(notes) == len(expected) and all(
        any(tells(note, words) and number == count for note, number in zip(notes, numbers, strict=True))
        for words, count in expected.items()
    )


def test_voc_beside_images_and_coco_say_the_same(tmp_path: Path) -> None:
    write_voc(tmp_path / "voc", 6, 0)
    write_coco(tmp_path / "coco", 6, 0, "boxes.json")
    (voc, faults), (other, others) = (
        boxed_images(find_annotations(tmp_path / name)["all"](), size=64) for name in ("voc", "coco")
    )
    assert not faults.found and not others.found
    assert voc.classes == other.classes == ["blue", "red"]
    pictures, boxes = blocks(6, 0)
    for i in range(6):
        assert torch.equal(voc.picture(i), torch.from_numpy(pictures[i]).permute(2, 0, 1))
        assert torch.equal(voc.targets[i].boxes, other.targets[i].boxes)
        assert voc.targets[i].boxes.tolist() == [list(map(float, box[1:])) for box in boxes[i]]
        assert [voc.classes[k] for k in voc.targets[i].kinds] == [box[0] for box in boxes[i]]


def test_the_faults_of_voc_files_are_counted(tmp_path: Path) -> None:
    boxes = {
        "good": [("cell", 1, 2, 30, 40)],
        "out": [("cell", 50, 50, 80, 60), ("cell", 70, 70, 90, 90), ("cell", -5, 0, 10, 10)],
        "flat": [("cell", 5, 5, 5, 9), ("cell", 9, 9, 4, 20), ("cell", float("nan"), 0, 5, 5), ("", 0, 0, 5, 5)],
        "empty": [],
        "gone": [("cell", 0, 0, 5, 5)],
    }
    for name, own in boxes.items():
        (tmp_path / f"{name}.xml").write_text(xml(f"{name}.png", own))
        if name != "gone":
            square(tmp_path / f"{name}.png")
    (tmp_path / "words.xml").write_text(xml("words.png", [("cell", 0, 0, 5, 5)]).replace(">5<", ">five<"))
    (tmp_path / "broken.xml").write_text("<annotation><object>")
    (tmp_path / "bomb.xml").write_text('<!DOCTYPE a [<!ENTITY x "y">]><annotation/>')
    (tmp_path / "noise.xml").write_text(xml("noise.png", [("cell", 0, 0, 5, 5)]))
    (tmp_path / "noise.png").write_bytes(b"no picture")
    (tmp_path / "wrong.xml").write_text(xml("wrong.png", [("cell", 0, 0, 5, 5)], size=(99, 64)))
    for name in ("words", "broken", "bomb", "alone", "wrong"):
        square(tmp_path / f"{name}.png")
    images, faults = boxed_images(find_annotations(tmp_path)["all"](), size=64)
    assert images.names == [f"{name}.xml" for name in ("empty", "flat", "good", "out", "words", "wrong")]
    expected = {
        "images annotation file": 1,
        "annotation files read": 2,
        "annotations image": 1,
        "boxes class": 1,
        "images read": 1,
        "images size boxes": 1,
        "boxes four numbers": 2,
        "boxes area": 2,
        "boxes outside image": 1,
        "boxes image clipped": 2,
        "images box negatives": 3,
    }
    assert counted(faults.notes("training"), expected)
    by_name = dict(zip(images.names, images.targets, strict=True))
    assert by_name["out.xml"].boxes.tolist() == [[50, 50, 64, 60], [0, 0, 10, 10]]
    assert len(by_name["empty.xml"].boxes) == 0 and by_name["empty.xml"].boxes.shape == (0, 4)


def test_the_faults_of_coco_files_are_counted(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        square(tmp_path / name)
    square(tmp_path.parent / "outside.png")
    stated = json.loads(coco(["a.png", "b.png", "gone.png", "../outside.png"], [[("red", 0, 0, 9, 9)], [], [], []]))
    stated["images"].append({"id": 3})
    stated["annotations"] += [
        {"image_id": 77, "category_id": 5, "bbox": [0, 0, 1, 1]},
        {"image_id": 10, "category_id": 99, "bbox": [0, 0, 1, 1]},
        {"image_id": 10, "category_id": 5, "bbox": [0, 0, None, 1]},
        {"image_id": 10, "category_id": 5},
        {"image_id": 12, "category_id": 5, "bbox": [0, 0, 5, 5]},
        {"image_id": 10, "category_id": 5, "bbox": [3, 4, 5, 6], "iscrowd": 1},
        "nonsense",
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(stated))
    images, faults = boxed_images(read_coco(tmp_path / "boxes.json"), size=64)
    assert images.names == ["a.png", "b.png"]
    assert images.classes == ["red"]  # blue has a crowd alone, which nothing is learned from
    expected = {
        "images": 2,
        "images id file_name": 1,
        "boxes image": 1,
        "boxes class": 1,
        "annotations image_id category_id": 1,
        "boxes four numbers": 2,
        "images box negatives": 1,
    }
    assert counted(faults.notes("training"), expected)


@pytest.mark.parametrize("content", ["{", "[]", '{"images": [], "annotations": 3}', "[" * 100_000])
def test_a_broken_json_file_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "boxes.json").write_text(content)
    with pytest.raises(ValueError, match=facts("boxes.json")):
        read_coco(tmp_path / "boxes.json")


def test_unknown_classes_of_the_test_part_are_left_out(tmp_path: Path) -> None:
    for part, own in (("train", [("cell", 0, 0, 9, 9)]), ("test", [("cell", 1, 1, 8, 8), ("yeast", 20, 20, 40, 40)])):
        square(tmp_path / part / "a.png")
        (tmp_path / part / "a.xml").write_text(xml("a.png", own))
    parts = open_boxed_splits(tmp_path, size=64)
    assert (parts.test_name, parts.test.classes, len(parts.test.targets[0].boxes)) == ("test", ["cell"], 1)
    assert all_tell(parts.notes, ["test class 1 yeast a.xml"])


def test_vocs_own_folders(tmp_path: Path) -> None:
    lists = tmp_path / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (tmp_path / "Annotations").mkdir()
    for i in range(4):
        square(tmp_path / "JPEGImages" / f"{i}.jpg")
        hard = "<difficult>1</difficult>" if i == 3 else ""
        (tmp_path / "Annotations" / f"{i}.xml").write_text(
            xml(f"{i}.jpg", [("dog", 0, 0, 20, 20), ("cat", 9, 9, 30, 30)], extra=hard)
        )
    for name, rows in (
        ("train", "0\n"),
        ("trainval", "0\n1\n9\n"),
        ("val", "1\n"),
        ("test", "2\n3\n"),
        ("cat_train", "0"),
    ):
        (lists / f"{name}.txt").write_text(rows)
    parts = open_boxed_splits(tmp_path, size=64)
    assert (len(parts.train), len(parts.test), parts.test_name) == (2, 2, "test")
    assert parts.train.classes == ["cat", "dog"]
    assert parts.test.targets[1].ignored.tolist() == [True, True]
    assert counted(parts.notes, {"images annotation": 1})
    (lists / "test.txt").unlink()
    parts = open_boxed_splits(tmp_path, size=64)
    assert (parts.train.names, parts.test_name) == (["Annotations/0.xml"], "val")


def test_coco_layouts(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        write_coco(tmp_path / "roboflow" / part, 3, 1)
    assert set(find_annotations(tmp_path / "roboflow")) == {"train", "valid", "test"}
    parts = open_boxed_splits(tmp_path / "roboflow", size=64)
    assert (len(parts.train), len(parts.test), parts.test_name, parts.notes) == (3, 3, "test", [])
    own = tmp_path / "own"
    write_coco(own / "images", 4, 2, "train.json")
    (own / "images" / "train.json").rename(own / "train.json")
    (own / "val.json").write_text((own / "train.json").read_text())
    parts = open_boxed_splits(own, size=64)
    assert (len(parts.train), len(parts.test), parts.test_name) == (4, 4, "val")
    parts = open_boxed_splits(own / "train.json", own / "val.json", size=64)
    assert (len(parts.train), len(parts.test), parts.test_name) == (4, 4, "test")
    original = tmp_path / "original"
    write_coco(original / "train2017", 2, 3, "instances_train2017.json")
    (original / "annotations").mkdir()
    (original / "train2017" / "instances_train2017.json").rename(original / "annotations" / "instances_train2017.json")
    (original / "annotations" / "captions_train2017.json").write_text('{"images": [], "annotations": []}')
    assert len(find_annotations(original)["train"]().pictures) == 2


def test_data_without_a_split_get_one(tmp_path: Path) -> None:
    write_voc(tmp_path / "all", 10, 0)
    parts = open_boxed_splits(tmp_path / "all", size=64, seed=3)
    assert (len(parts.train), len(parts.test), parts.test_name) == (8, 2, "held-out")
    assert not set(parts.train.names) & set(parts.test.names)
    assert tells(parts.notes[0], "split")
    assert len(parts.notes) == 1


def test_a_class_that_is_held_out_whole_is_told(tmp_path: Path) -> None:
    write_voc(tmp_path / "all", 4, 0)
    (tmp_path / "all" / "0.xml").write_text(xml("0.png", [("yeast", 4, 4, 30, 30)]))
    told = set()
    for seed in range(8):
        parts = open_boxed_splits(tmp_path / "all", size=64, seed=seed)
        (held,) = parts.test.names
        said = any(tells(note, "AP 0 yeast") for note in parts.notes)
        assert said == held.startswith("0.")
        told.add(said)
    assert told == {True, False}


@pytest.mark.parametrize("name", ["nowhere", "empty", "pictures"])
def test_data_without_boxes_are_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    square(tmp_path / "pictures" / "a.png")
    with pytest.raises(ValueError, match=facts("box")):
        open_boxed_splits(tmp_path / name, size=64)


def test_only_negatives_are_nothing_to_learn_from(tmp_path: Path) -> None:
    square(tmp_path / "a.png")
    (tmp_path / "a.xml").write_text(xml("a.png", []))
    with pytest.raises(ValueError, match=facts("box train")):
        open_boxed_splits(tmp_path, size=64)


def test_large_pictures_shrink_with_their_boxes_and_small_ones_stay() -> None:
    (picture,), _ = blocks(1, 0, width=200, height=100)
    entry = Annotated("a", picture, [(20, 10, 120, 90)], ["red"], [False])
    images, _ = boxed_images(Annotations([entry], ["red"]), size=100)
    assert images.picture(0).shape == (3, 50, 100) and images.shapes.tolist() == [[50, 100]]
    assert images.targets[0].boxes.tolist() == [[10, 5, 60, 45]]
    assert images.fetch(torch.tensor([0])).shape == (1, 3, 100, 100)
    images, _ = boxed_images(Annotations([entry], ["red"]), size=300)
    assert images.picture(0).shape == (3, 100, 200)


def test_pictures_beyond_the_memory_are_decoded_at_every_look(tmp_path: Path) -> None:
    write_voc(tmp_path / "voc", 3, 0)
    stated = read_voc(tmp_path / "voc")
    kept, _ = boxed_images(stated, size=48)
    looked, _ = boxed_images(stated, size=48, in_memory=0)
    assert all(torch.equal(kept.picture(i), looked.picture(i)) for i in range(3))


def test_a_turned_photograph_is_set_upright_unless_its_boxes_lie_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(tmp_path / "a.jpg", exif=exif)
    for size, expected in ((None, (20, 40)), ((20, 40), (20, 40)), ((40, 20), (40, 20))):
        assert fitted(Annotated("a", tmp_path / "a.jpg", [], [], [], size), 64)[1] == expected


def test_glyph_scenes_by_name() -> None:
    parts = open_boxed_splits("glyph-scenes:20", size=256)
    assert (len(parts.train), len(parts.test), parts.test_name) == (20, 4, "test")
    assert not parts.train.mirrored and parts.train.size == 96
    assert find_boxes("glyphs-scenes:5").keys() == {"train", "test"} and not find_boxes("glyphs")
