"""Packing: once, whatever happens in between, and only what can be read."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from nearfar.data.cache import cache_folder
from nearfar.data.dataset import ArrayDataset
from nearfar.modalities.image.data.decode import decode
from nearfar.modalities.image.data.opening import image_files
from nearfar.modalities.image.data.pack import pack_images
from nearfar.modalities.image.data.source import ImageSource
from nearfar.modalities.image.data.stream import StreamDataset
from tests.support.facts import facts, tells


def folder_of(data: ArrayDataset) -> Path:
    """Where the pixels are."""
    assert isinstance(data.images, np.memmap)
    return Path(str(data.images.filename)).parent


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve readable images in three classes, each filled with its own number."""
    for i in range(12):
        folder = tmp_path / "photos" / "abc"[i % 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (20, 10), 10 * i).save(folder / f"{i:02}.png")
    return tmp_path / "photos"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Counting(ImageSource):
    """A source that counts how often it decodes."""

    reads = 0

    def read(self, index: int, size: int) -> NDArray[np.uint8]:
        type(self).reads += 1
        return super().read(index, size)


def counted(folder: Path) -> Counting:
    Counting.reads = 0
    source = image_files(folder, labels=True)
    return Counting(source.description, source.names, source.paths, labels=source.labels, classes=source.classes)


def values(folder: Path, cache: Path) -> dict[str, int]:
    data = pack_images(image_files(folder), size=8, cache=cache, progress=False)
    return dict(zip(data.names, data.fetch(torch.arange(len(data)))[:, 0, 4, 4].tolist(), strict=True))


def expected(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): 10 * int(path.stem) for path in folder.rglob("*.png")}


def test_packs_once(photos: Path, cache: Path) -> None:
    first = pack_images(counted(photos), size=8, cache=cache, progress=False)
    assert Counting.reads == 12 and first.skipped == []
    again = pack_images(counted(photos), size=8, cache=cache, progress=False)
    assert Counting.reads == 0 and folder_of(again) == folder_of(first)
    assert isinstance(again.images, np.memmap)
    assert values(photos, cache) == expected(photos)
    assert again.labels is not None and again.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    pack_images(counted(photos), size=4, cache=cache, progress=False)
    assert Counting.reads == 12  # another size is another pack


def test_only_what_changed_is_decoded_again(photos: Path, cache: Path) -> None:
    pack_images(counted(photos), size=8, cache=cache, progress=False)
    Image.new("L", (20, 10), 200).save(photos / "a" / "20.png")  # new
    Image.new("L", (30, 15), 10).save(photos / "b" / "01.png")  # other length, other time
    (photos / "c" / "02.png").unlink()
    pack_images(counted(photos), size=8, cache=cache, progress=False)
    assert Counting.reads == 2
    assert values(photos, cache) == expected(photos)


def test_touched_file_is_decoded_again(photos: Path, cache: Path) -> None:
    pack_images(counted(photos), size=8, cache=cache, progress=False)
    os.utime(photos / "a" / "00.png", ns=(1, 1))
    pack_images(counted(photos), size=8, cache=cache, progress=False)
    assert Counting.reads == 1


def spoil(photos: Path) -> None:
    (photos / "a" / "text.jpg").write_text("no image")
    whole = (photos / "b" / "01.png").read_bytes()
    (photos / "b" / "cut.png").write_bytes(whole[:50])


def test_broken_files_are_skipped_and_listed(photos: Path, cache: Path) -> None:
    spoil(photos)
    for reads in (14, 0):
        packed = pack_images(counted(photos), size=8, cache=cache, progress=False)
        assert Counting.reads == reads  # known to be broken: not tried again
        assert [skip.path for skip in packed.skipped] == ["a/text.jpg", "b/cut.png"]
        assert tells(packed.skipped[0].reason, "image")
        assert len(packed) == 12
        assert packed.labels is not None and packed.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    kept = values(photos, cache)
    assert kept == {name: value for name, value in kept.items() if name not in ("a/text.jpg", "b/cut.png")}


def test_a_reason_the_journal_does_not_know_is_dropped(photos: Path, cache: Path) -> None:
    folder = folder_of(pack_images(image_files(photos), size=8, cache=cache, progress=False))
    (folder / "broken.json").write_text('{"3": "was broken"}')
    assert pack_images(image_files(photos), size=8, cache=cache, progress=False).skipped == []


@pytest.mark.skipif(sys.platform != "linux", reason="only there may a name be any bytes")
def test_names_that_are_no_text(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / os.fsdecode(b"phot\xf6s")
    folder.mkdir()
    Image.new("L", (8, 8), 70).save(folder / os.fsdecode(b"\xe4.png"))
    (folder / os.fsdecode(b"\xe5.png")).write_text("no image")
    packed = pack_images(image_files(folder), size=8, cache=cache, progress=False)
    assert len(packed) == len(packed.skipped) == 1


def test_strict_names_the_file(photos: Path, cache: Path) -> None:
    pack_images(image_files(photos), size=8, cache=cache, strict=True, progress=False)
    spoil(photos)
    for _ in range(2):  # also when the cache knows
        with pytest.raises(ValueError, match=r"text\.jpg|cut\.png") as error:
            pack_images(image_files(photos), size=8, cache=cache, strict=True, progress=False)
        assert "\n" not in str(error.value)
        pack_images(image_files(photos), size=8, cache=cache, progress=False)


def test_nothing_readable_is_an_error(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "photos").mkdir()
    for i in range(3):
        (tmp_path / "photos" / f"{i}.jpg").write_text("no image")
    with pytest.raises(ValueError, match=facts("3 0.jpg image")) as error:
        pack_images(image_files(tmp_path / "photos"), size=8, cache=cache, progress=False)
    assert "\n" not in str(error.value)


def test_a_file_that_could_not_be_opened_is_tried_again(
    photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, size: int) -> NDArray[np.uint8]:
        if path.name == "00.png":
            raise PermissionError(13, "Permission denied")
        return decode(path, size)

    with monkeypatch.context() as patch:
        patch.setattr("nearfar.modalities.image.data.source.decode", refused)
        packed = pack_images(image_files(photos), size=8, cache=cache, progress=False)
    assert [(skip.path, skip.reason) for skip in packed.skipped] == [("a/00.png", "Permission denied")]
    assert values(photos, cache) == expected(photos)


STUCK = """
import sys, time
from itertools import count
from pathlib import Path
from nearfar.data.dataset import ArrayDataset
from nearfar.modalities.image.data.pack import pack_images
from nearfar.modalities.image.data import source
from nearfar.modalities.image.data.opening import image_files
module = sys.modules["nearfar.data.pack"]
module.JOURNAL_SECONDS, module.CHUNK = -1.0, 1
plain, calls = source.decode, count()
def stuck(*arguments):
    time.sleep(600 if next(calls) == 5 else 0)
    return plain(*arguments)
source.decode = stuck
pack_images(image_files(sys.argv[1], labels=True), size=8, cache=Path(sys.argv[2]), workers=1, progress=False)
"""


def test_killed_pack_goes_on(photos: Path, cache: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", STUCK, str(photos), str(cache)])
    deadline, finished = time.monotonic() + 60, 0
    while finished < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
        finished = sum(int(np.load(journal)["state"].sum()) for journal in cache.glob("packs/*/*/rows.npy"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert finished == 5
    pack_images(counted(photos), size=8, cache=cache, progress=False)
    assert Counting.reads == 7
    assert values(photos, cache) == expected(photos)


@pytest.mark.parametrize("damage", ["pixels", "header", "cut", "journal", "journal cut", "reasons", "gone"])
def test_damaged_cache_is_found_and_mended(photos: Path, cache: Path, damage: str) -> None:
    folder = folder_of(pack_images(image_files(photos), size=8, cache=cache, progress=False))
    images, rows = folder / "images.npy", folder / "rows.npy"
    data = bytearray(images.read_bytes())
    if damage == "pixels":
        data[-1] ^= 255
        images.write_bytes(data)
    elif damage == "header":
        images.write_bytes(b"nonsense" + data[8:])
    elif damage == "cut":
        images.write_bytes(data[:-100])
    elif damage == "journal":
        rows.write_bytes(b"nonsense")
    elif damage == "journal cut":
        rows.write_bytes(rows.read_bytes()[:-10])
    elif damage == "reasons":
        (folder / "broken.json").write_text("{")
    else:
        images.unlink()
    pack_images(counted_unlabelled(photos), size=8, cache=cache, progress=False)
    assert Counting.reads == (1 if damage in ("pixels", "cut") else 12)
    assert values(photos, cache) == expected(photos)


def counted_unlabelled(folder: Path) -> Counting:
    source = counted(folder)
    return Counting(source.description, source.names, source.paths)


def test_two_packers_at_once_share_the_work(photos: Path, cache: Path) -> None:
    source = counted(photos)
    threads = [
        threading.Thread(target=pack_images, args=(source,), kwargs={"size": 8, "cache": cache, "progress": False})
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counting.reads == 12


def test_no_room_is_said_before_the_work(photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(OSError, match=facts("GB free")):
        pack_images(image_files(photos), size=8, cache=cache, progress=False)


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "there"))
    assert cache_folder() == tmp_path / "there" and (tmp_path / "there").is_dir()
    assert cache_folder(tmp_path / "other") == tmp_path / "other"
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=facts("NEARFAR_CACHE")):
        cache_folder(tmp_path / "file" / "below")


def test_stream_is_what_pack_is(photos: Path, cache: Path) -> None:
    packed = pack_images(image_files(photos, labels=True), size=8, cache=cache, progress=False)
    stream = StreamDataset(image_files(photos, labels=True), 8, workers=2)
    indices = torch.tensor([7, 0, 7, 11])
    assert torch.equal(stream.fetch(indices), packed.fetch(indices))
    assert stream.names == packed.names and stream.classes == packed.classes and len(stream) == len(packed)
    assert stream.labels is not None and packed.labels is not None and torch.equal(stream.labels, packed.labels)


def test_subset_of_a_stream(photos: Path) -> None:
    stream = StreamDataset(image_files(photos, labels=True), 8, workers=2)
    part = stream.subset(torch.tensor([9, 2, 5])).subset(torch.tensor([2, 0]))
    assert torch.equal(part.fetch(torch.arange(2)), stream.fetch(torch.tensor([5, 9])))
    assert part.names == [stream.names[5], stream.names[9]]
    assert part.labels is not None and part.labels.tolist() == [1, 2]


def test_stream_gives_gray_for_the_broken(photos: Path) -> None:
    spoil(photos)
    stream = StreamDataset(image_files(photos), 8, workers=2)
    broken = list(stream.names).index("a/text.jpg")
    assert stream.skipped == []
    x = stream.fetch(torch.arange(len(stream)))
    assert bool((x[broken] == 128).all())
    assert [skip.path for skip in stream.skipped] == ["a/text.jpg", "b/cut.png"]
    with pytest.raises(ValueError, match=facts("a/text.jpg image")):
        StreamDataset(image_files(photos), 8, strict=True).fetch(torch.tensor([broken]))
