"""The doctor of Python objects: a data set of others is read by one thread, and splits are compared."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import Dataset

import nearfar
from tests.support.facts import facts, tells

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


def test_an_lmdb_is_refused_with_the_way_to_read_it(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"")
    with pytest.raises(ValueError, match=facts("LMDB Dataset")):
        nearfar.doctor(tmp_path, progress=False)


def test_the_level_of_nested_folders_is_told_where_another_has_other_classes(tmp_path: Path) -> None:
    for row in range(12):
        folder = tmp_path / "abcd"[row % 2] / "wxyz"[row % 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS[row]).save(folder / f"{row}.png")
    found = nearfar.doctor(tmp_path, progress=False)
    assert tells(found.lines()[0], "2 first --data.labels leaf 3 path 6")
    assert found.diagnosis.classes == {"a": 6, "b": 6}
    assert tells(nearfar.doctor(tmp_path, labels="leaf", progress=False).lines()[0], "12 images")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("text,label\nwho is there,1\nnobody is there,0\n", "sentences"),
        ("".join(f"{row},{','.join(map(str, range(row, row + 30)))}\n" for row in range(6)), "series"),
    ],
)
def test_tables_of_another_kind_are_refused_by_their_kind(tmp_path: Path, content: str, kind: str) -> None:
    (tmp_path / "x_train.csv").write_text(content)
    with pytest.raises(ValueError, match=facts(f"images {kind} x_train.csv")):
        nearfar.doctor(tmp_path / "x_train.csv", progress=False)
