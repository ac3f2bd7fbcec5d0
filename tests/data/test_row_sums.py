"""A pack on a disk that fails or fills: a changed byte is never trained on, a full disk is a line."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.data import store
from nearfar.data.store import NoSpaceError, reserve
from nearfar.modalities.image.data.opening import open_images
from nearfar.modalities.sound.data import open_sounds
from tests.search.pictures import folder_of
from tests.support.facts import facts
from tests.support.sounds import RATE, recordings


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def test_every_flipped_byte_is_seen_before_it_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = folder_of(tmp_path / "photos", 40)
    whole = open_images(photos, stored_size=16, cache=tmp_path / "cache", progress=False).fetch(torch.arange(40))
    (pack,) = (tmp_path / "cache").rglob("images.npy")
    monkeypatch.setattr(store, "CHECKED_BYTES", 3 * 16 * 16)  # of a large pack, a small part is read at each start
    for row in range(1, 39, 4):
        data = open_images(photos, stored_size=16, cache=tmp_path / "cache", progress=False)
        flip(pack, pack.stat().st_size - (40 - row) * 3 * 16 * 16 + 100)
        with pytest.raises(OSError, match=facts(f"sample {row} pack --resume")):
            data.fetch(torch.arange(40).roll(7))
        again = open_images(photos, stored_size=16, cache=tmp_path / "cache", progress=False)
        assert torch.equal(again.fetch(torch.arange(40)), whole)


def test_sounds_are_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = recordings(tmp_path / "sounds", words=2, speakers=1, takes=2)
    monkeypatch.setattr(store, "CHECKED_BYTES", 1)
    options: dict[str, Any] = {"sample_rate": RATE, "cache": tmp_path / "cache", "progress": False}
    whole = open_sounds(folder, **options).fetch(torch.arange(4))
    (pack,) = (tmp_path / "cache").rglob("sounds.i16")
    data = open_sounds(folder, max_seconds=0.05, **options).subset(torch.tensor([2, 1, 0]))
    flip(pack, pack.stat().st_size // 2)
    with pytest.raises(OSError, match=facts("sample pack")):
        data.fetch(torch.arange(3))
    assert torch.equal(open_sounds(folder, **options).fetch(torch.arange(4)), whole)


def test_a_pack_has_its_room_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = folder_of(tmp_path / "photos", 6)
    open_images(photos, stored_size=64, cache=tmp_path / "cache", progress=False)
    (pack,) = (tmp_path / "cache").rglob("images.npy")
    assert pack.stat().st_blocks * 512 >= pack.stat().st_size
    made = pack.stat().st_mtime_ns

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(NoSpaceError, match=facts("room NEARFAR_CACHE")):
        open_images(photos, stored_size=32, cache=tmp_path / "cache", progress=False)
    assert [file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("images.npy")] == [made]
    with pytest.raises(NoSpaceError):  # an earlier pack that has holes
        open_images(photos, stored_size=64, cache=tmp_path / "cache", progress=False)
    assert pack.exists()
    monkeypatch.undo()
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 20)
    reserve(sparse, 1 << 20)
    assert sparse.stat().st_blocks * 512 >= 1 << 20 and not np.fromfile(sparse, np.uint8).any()
