"""Shards written by WebDataset itself, and shards that are damaged."""

import io
import json
import tarfile
from pathlib import Path

import pytest
import torch
import webdataset
from PIL import Image

from nearfar.data.dataset import Dataset
from nearfar.doctor import examine
from nearfar.modalities.image.data.opening import image_files, open_images
from nearfar.modalities.image.data.shards import expanded, shard_files
from tests.support.facts import all_tell, facts, lists


def picture(value: int, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("L", (6, 4), value).save(file, kind)
    return file.getvalue()


def write_shards(folder: Path, n: int = 7, split: str = "train") -> Path:
    """Three samples a shard, by WebDataset's own writer."""
    folder.mkdir(exist_ok=True)
    with webdataset.ShardWriter(str(folder / f"{split}-%03d.tar"), maxcount=3, verbose=0) as writer:
        for i in range(n):
            writer.write({"__key__": f"{i:05d}", "png": picture(10 * i), "txt": f"number {i}", "cls": i % 2})
    return folder


def add(file: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(file, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file


def opened(spec: str | Path, tmp_path: Path, **arguments: object) -> Dataset:
    return open_images(spec, stored_size=4, cache=tmp_path / "cache", progress=False, **arguments)  # type: ignore[arg-type]


def test_webdatasets_own_shards(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards")
    for spec in (folder, str(folder / "train-{000..002}.tar"), str(folder / "*.tar")):
        data = opened(spec, tmp_path)
        assert data.names[3] == "train-001.tar/00003.png" and len(data) == 7 and data.skipped == []
        assert data.captions == [(f"number {i}",) for i in range(7)]
        assert data.labels is not None and data.labels.tolist() == [0, 1, 0, 1, 0, 1, 0]
        assert data.fetch(torch.arange(7))[:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40, 50, 60]
    one = opened(folder / "train-001.tar", tmp_path, stream=True, labels=False)
    assert one.names[0] == "train-001.tar/00003.png" and one.labels is None
    assert int(one.fetch(torch.tensor([0])).max()) == 30


def test_splits_are_folders_or_words_of_the_names(tmp_path: Path) -> None:
    folder = write_shards(write_shards(tmp_path / "shards"), 2, "val")
    assert len(image_files(folder)) == 9 and len(image_files(folder, split="val")) == 2
    with pytest.raises(ValueError, match=facts("4 'vla' 'val'")):
        image_files(folder, split="vla")
    for split in ("train", "test"):
        (tmp_path / "parts").mkdir(exist_ok=True)
        write_shards(tmp_path / "parts" / split, 2, "0")
    assert image_files(tmp_path / "parts", split="test").names == ["0-000.tar/00000.png", "0-000.tar/00001.png"]
    both = image_files(tmp_path / "parts")
    assert both.names[1:3] == ["test/0-000.tar/00001.png", "train/0-000.tar/00000.png"]


def test_a_second_start_reads_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shards(tmp_path / "shards")
    opened(folder, tmp_path)
    add(folder / "train-003.tar", {"a.png": picture(99), "a.txt": b"one more"})
    read = []
    monkeypatch.setattr("nearfar.modalities.image.data.source.decode", lambda file, size: read.append(file) or 1 / 0)
    data = opened(folder, tmp_path)
    assert len(read) == 1 and len(data) == 7  # the new one alone was looked at, and failed here
    monkeypatch.setattr("tarfile.open", lambda *_: 1 / 0)
    assert opened(folder, tmp_path).captions == data.captions  # not even a header is read


def test_json_with_captions_label_and_group(tmp_path: Path) -> None:
    records = [
        {"captions": ["one", "two"], "label": "cat", "group": 1},
        {"captions": "three", "label": "dog", "group": 1},
    ]
    members = {}
    for i, record in enumerate(records):
        members |= {f"d/{i}.json": json.dumps(record).encode(), f"d/{i}.seg.jpg": picture(9, "JPEG")}
    data = opened(add(tmp_path / "a.tar", members), tmp_path)
    assert data.captions == [("one", "two"), ("three",)] and data.classes == ["cat", "dog"]
    assert data.groups is not None and data.groups.tolist() == [0, 0]
    assert data.names == ["a.tar/d/0.seg.jpg", "a.tar/d/1.seg.jpg"]
    named = image_files(tmp_path / "a.tar", caption_column="label")
    assert named.captions == [("cat",), ("dog",)]


def test_broken_members_are_listed(tmp_path: Path) -> None:
    members = {
        "0.jpg": b"no picture", "0.txt": b"zero", "1.png": picture(1), "1.txt": b"", "2.txt": b"two",
        "3.png": picture(3), "3.json": b"{", "3.txt": b"three", "3.webp": picture(4), "4.png": picture(4),
        "4.txt": b"caf\xe9", "5.png": b"", "5.txt": b"five", "._6.png": b"mac", "7.txt": b"x" * (1 << 21),
    }  # fmt: skip
    data = opened(add(tmp_path / "a.tar", members), tmp_path)
    assert data.names == ["a.tar/3.png"] and data.captions == [("three",)]
    expected = [
        ("a.tar/0.jpg", "image"),
        ("a.tar/1.png", "row 2 caption empty"),
        ("a.tar/2", ""),
        ("a.tar/3.json", "JSON"),
        ("a.tar/3.webp", "a.tar/3.png"),
        ("a.tar/4.png", "row 4 caption UTF-8"),
        ("a.tar/5.png", "image"),
        ("a.tar/7", ""),
        ("a.tar/7.txt", "2,097,152 text 1,048,576"),
    ]
    assert lists(sorted(data.skipped, key=lambda skip: skip.path), expected)


@pytest.mark.parametrize("damage", ["cut in data", "cut in header", "zeroed header", "noise for header"])
def test_a_damaged_shard_keeps_what_came_before(tmp_path: Path, damage: str) -> None:
    members = {f"{i}.{kind}": picture(i) if kind == "png" else b"words" for i in range(4) for kind in ("png", "txt")}
    file = add(tmp_path / "a.tar", members)
    with tarfile.open(file) as tar:
        third = tar.getmember("2.png")
    content = bytearray(file.read_bytes())
    if damage == "cut in data":
        content = content[: third.offset_data + 10]
    elif damage == "cut in header":
        content = content[: third.offset + 100]
    else:
        content[third.offset : third.offset + 512] = b"\0" * 511 + b"\1" if damage == "zeroed header" else b"\xa7" * 512
    file.write_bytes(content)
    data = opened(file, tmp_path)
    assert data.names == ["a.tar/0.png", "a.tar/1.png"]
    assert len(data.skipped) == 1 and data.skipped[0].path == str(file)
    assert data.skipped[0].reason


def test_what_is_no_shard(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards", 3)
    (folder / "train-001.tar").write_bytes(b"nonsense" * 100)
    data = opened(str(folder / "train-{000..002}.tar"), tmp_path)
    assert len(data) == 3
    assert all_tell((skip.reason for skip in data.skipped), ["tar", "not found"])
    for spec, message in [
        (str(tmp_path / "none-*.tar"), ".tar"),
        (str(folder / "train-001.tar"), "1 tar"),
        (str(tmp_path / "gone.tar"), "1 not found"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError), match=facts(message)) as error:
            open_images(spec)
        assert "\n" not in str(error.value)


def test_links_and_paths_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(picture(200))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, kind in (("0.png", tarfile.SYMTYPE), ("1.png", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, str(tmp_path / "secret.png")
            tar.addfile(info)
        info = tarfile.TarInfo("../../out.png")
        info.size = len(picture(5))
        tar.addfile(info, io.BytesIO(picture(5)))
    before = sorted(tmp_path.rglob("*"))
    data = open_images(tmp_path / "a.tar", stored_size=4, stream=True)
    assert len(data) == 1 and int(data.fetch(torch.tensor([0])).max()) == 5
    assert sorted(tmp_path.rglob("*")) == before


def test_patterns(tmp_path: Path) -> None:
    assert list(expanded("a{2..0}b")) == ["a2b", "a1b", "a0b"] and list(expanded("x")) == ["x"]
    (tmp_path / "odd[1].tar").touch()
    assert shard_files(tmp_path / "odd[1].tar") == [tmp_path / "odd[1].tar"]


def test_the_doctor_looks_into_shards(tmp_path: Path) -> None:
    file = add(tmp_path / "a.tar", {"0.png": picture(3), "1.png": b"broken", "2.png": picture(3)})
    findings = examine(image_files(file), progress=False)
    assert findings.names == ["a.tar/0.png", "a.tar/2.png"] and findings.exact_groups == 1
