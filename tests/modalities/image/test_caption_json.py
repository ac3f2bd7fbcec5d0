"""COCO's and Karpathy's captions: images found beside the file, splits respected, what is wrong listed."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from nearfar.modalities.image.data.opening import image_files, open_images
from tests.support.facts import all_tell, facts, lists


def paint(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), value).save(path)
    return path


def write_coco(folder: Path, split: str, first: int) -> Path:
    """COCO's own layout: `annotations/captions_train2017.json`, `train2017/000000000001.jpg`."""
    file = folder / "annotations" / f"captions_{split}2017.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    names = {number: f"{number:012d}.jpg" for number in range(first, first + 3)}
    for name in list(names.values())[:2]:  # the third is missing
        paint(folder / f"{split}2017" / name, first)
    captions = [
        {"id": 10 * number + k, "image_id": number, "caption": f"{split} {number}, caption {k}.\n"}
        for k in range(5)
        for number in names
    ]
    images = [{"id": number, "file_name": name, "height": 4, "width": 4} for number, name in names.items()]
    wrong = [{"image_id": first, "caption": ""}, {"image_id": 99, "caption": "of nothing"}, {"image_id": None}, 7]
    file.write_text(json.dumps({"info": {}, "images": images, "annotations": captions + wrong}))
    return file


def test_coco(tmp_path: Path) -> None:
    file = write_coco(tmp_path, "train", 1)
    write_coco(tmp_path, "val", 50)
    data = open_images(file, stored_size=4, cache=tmp_path / "cache", progress=False)
    assert data.names == ["000000000001.jpg", "000000000002.jpg"] and data.captions is not None
    assert data.captions[1] == tuple(f"train 2, caption {k}." for k in range(5))
    assert lists(
        data.skipped,
        [
            ("image 99", "captions"),
            ("000000000001.jpg", "row 1 caption empty"),
            ("000000000003.jpg", "not found"),
        ],
    )
    assert image_files(file, split="train").names == image_files(file).names
    assert image_files(file, split="val").names[0] == "000000000050.jpg"
    with pytest.raises(ValueError, match=facts("split 'train' 'test'")):
        image_files(file, split="test")


def karpathy(folder: str | None = None) -> dict[str, object]:
    entries: list[dict[str, object]] = []
    for number, split in enumerate(["train", "val", "test", "train"]):
        raw = [{"raw": f"Sentence {k} of {number} .", "tokens": [], "imgid": number} for k in range(5)]
        entries.append({"filename": f"{number}.jpg", "sentences": raw if number else [], "split": split})
        if folder is not None:
            entries[-1]["filepath"] = folder
    return {"images": [*entries, {"sentences": []}, None], "dataset": "flickr30k"}


@pytest.mark.parametrize("place", ["", "images", "flickr30k-images"])
def test_flickr(tmp_path: Path, place: str) -> None:
    for number in range(4):
        paint(tmp_path / place / f"{number}.jpg", number)
    file = tmp_path / "dataset_flickr30k.json"
    file.write_text(json.dumps(karpathy()))
    data = open_images(file, stored_size=4, cache=tmp_path / "cache", progress=False)
    assert data.names == ["1.jpg", "2.jpg", "3.jpg"]
    assert data.captions is not None and data.captions[2] == tuple(f"Sentence {k} of 3 ." for k in range(5))
    assert all_tell((s.reason for s in data.skipped), ["row 1 caption empty", "path"])
    assert image_files(file, split="test").names == ["2.jpg"]
    with pytest.raises(ValueError, match=facts("split 'dev' 'train' 'val' 'test'")):
        image_files(file, split="dev")


def test_images_with_a_folder_of_their_own_or_given(tmp_path: Path) -> None:
    file = tmp_path / "here" / "dataset_coco.json"
    file.parent.mkdir()
    file.write_text(json.dumps(karpathy("val2014")))
    with pytest.raises(ValueError, match=facts("1.jpg root")) as error:
        image_files(file)
    assert "\n" not in str(error.value)
    paint(tmp_path / "far" / "val2014" / "2.jpg", 9)
    for root, name in ((tmp_path / "far", "val2014/2.jpg"), (tmp_path / "far" / "val2014", "2.jpg")):
        data = open_images(file, root=root, stored_size=4, cache=tmp_path / "cache", progress=False)
        assert data.names == [name] and int(data.fetch(torch.tensor([0])).max()) == 9
        assert len(data.skipped) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[]", "image"),
        (
            '{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "bbox": []}]}',
            "boxes",
        ),
    ],
)
def test_refuses_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=facts(message)) as error:
        image_files(tmp_path / "a.json")
    assert "\n" not in str(error.value)


def test_names_stay_below_the_folder(tmp_path: Path) -> None:
    paint(tmp_path / "secret.png")
    paint(tmp_path / "data" / "a.png")
    entries = [{"filename": "a.png", "sentences": ["a"]}, {"filename": "../secret.png", "sentences": ["b"]}]
    (tmp_path / "data" / "d.json").write_text(json.dumps({"images": entries}))
    source = image_files(tmp_path / "data" / "d.json")
    assert source.paths == [tmp_path / "data" / "a.png", tmp_path / "data" / "secret.png"]
