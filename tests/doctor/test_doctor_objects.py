"""The doctor of Python objects: a data set of others is read by one thread, and splits are compared."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

import nearfar
from tests.support.facts import tells

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)


class OneAtATime(Dataset[Any]):
    """As one that seeks in an open file: two reads at once would disturb each other."""

    reading = 0

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, row: int) -> Any:
        self.reading += 1
        time.sleep(0.002)
        alone = self.reading == 1
        self.reading -= 1
        if not alone:
            raise RuntimeError("two reads at once")
        return PIXELS[row]


def test_a_data_set_of_others_is_read_by_one_thread() -> None:
    assert nearfar.doctor(OneAtATime(), progress=False).problems == []


def test_splits_by_name_are_compared() -> None:
    found = nearfar.doctor({"train": PIXELS[:16], "validation": PIXELS[14:]}, progress=False)
    assert len(found.leaks) == 2


def test_photos_of_kinds_that_are_not_read_are_named_but_not_beside_their_jpeg(tmp_path: Path) -> None:
    for row in range(3):
        Image.fromarray(PIXELS[row]).save(tmp_path / f"{row}.JPG")
    for name in ("0.NEF", "alone.nef", "scan.jp2", "notes.txt"):
        (tmp_path / name).write_bytes(b"none")
    found = nearfar.doctor(tmp_path, progress=False)
    assert [problem.path for problem in found.problems] == ["alone.nef", "scan.jp2"]
    assert tells(found.lines()[0], "5 images 3") and tells(found.lines()[1], "2 alone.nef scan.jp2")
