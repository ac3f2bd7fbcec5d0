"""Folders, tables and arrays: what is found, in which order, under which names and labels."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from nearfar.data.columns import group_column, label_column
from nearfar.data.sources import walk
from nearfar.modalities.image.data.opening import image_files, open_images
from tests.support.facts import facts, lists


def paint(path: Path, value: int = 0, side: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (side, side), value).save(path)
    return path


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_folder_is_recursive_sorted_and_skips_the_hidden(tmp_path: Path) -> None:
    for name in ("b/x.PNG", "a/deep/er/y.jpeg", "a/z.gif", "top.bmp", ".hidden/n.png", "a/.n.png", "ünï cödé/k ä.webp"):
        paint(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    source = image_files(tmp_path)
    assert source.names == ["a/deep/er/y.jpeg", "a/z.gif", "b/x.PNG", "top.bmp", "ünï cödé/k ä.webp"]
    assert source.labels is None and source.classes is None
    assert len(open_images(tmp_path, stored_size=4, cache=tmp_path / "cache", progress=False)) == 5


def test_sub_folders_are_labels_when_asked(tmp_path: Path) -> None:
    for name in ("dog/1.png", "cat/1.png", "cat/deep/2.png", "loose.png"):
        paint(tmp_path / name)
    source = image_files(tmp_path, labels=True)
    assert source.classes == ["cat", "dog"] and source.labels is not None
    assert dict(zip(source.names, source.labels.tolist(), strict=True)) == {
        "cat/1.png": 0, "cat/deep/2.png": 0, "dog/1.png": 1, "loose.png": -1,
    }  # fmt: skip
    given = image_files(tmp_path, labels=True, classes=["dog", "bird", "cat"])
    assert given.labels is not None and given.labels.tolist() == [2, 2, 0, -1]


def test_folders_named_by_numbers_are_names(tmp_path: Path) -> None:
    for name in ("0/1.png", "7/1.png"):
        paint(tmp_path / name)
    assert image_files(tmp_path, labels=True).classes == ["0", "7"]


def test_links_that_lead_back_end(tmp_path: Path) -> None:
    paint(tmp_path / "a/x.png")
    (tmp_path / "a/loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a/self").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "nowhere.png").symlink_to(tmp_path / "gone.png")
    outside = paint(tmp_path.parent / f"{tmp_path.name}-outside/far.png").parent
    (tmp_path / "linked").symlink_to(outside, target_is_directory=True)
    assert image_files(tmp_path).names == ["a/x.png", "linked/far.png", "nowhere.png"]


def test_what_cannot_be_looked_at_is_left_out_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/x.png", "closed/y.png", "b.png"):
        paint(tmp_path / name)
    (tmp_path / "a/loop.png").symlink_to(tmp_path / "a/loop.png")
    opened = os.scandir

    def scandir(folder: Path) -> object:  # permissions mean nothing to root, whom tests may run as
        if folder.name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return opened(folder)

    monkeypatch.setattr("os.scandir", scandir)
    source = image_files(tmp_path)
    assert source.names == ["a/x.png", "b.png"]
    loop, closed = source.skipped
    assert (loop.path, loop.samples) == ("a/loop.png", 1) and "symbolic links" in loop.reason
    assert (closed.path, closed.reason, closed.samples) == ("closed", "Permission denied", None)
    sounds = {path.relative_to(tmp_path).as_posix() for path in walk(tmp_path, frozenset({".png"}))}
    assert sounds == {"a/x.png", "b.png"}
    with pytest.raises(PermissionError):
        image_files(tmp_path / "closed")
    paint(tmp_path / "c/closed/z.png")
    with pytest.raises(ValueError, match=facts("image closed Permission")):
        image_files(tmp_path / "c")


def test_folder_split(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "test/a/2.png", "validation/a/3.png"):
        paint(tmp_path / name)
    assert image_files(tmp_path, split="test").names == ["a/2.png"]
    assert image_files(tmp_path, split="val").names == ["a/3.png"]
    with pytest.raises(ValueError, match=facts("split 'tset' 'test'")) as error:
        image_files(tmp_path, split="tset")
    one_line(error)


def write_table(path: Path, rows: list[dict[str, object]]) -> Path:
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    else:
        separator = "\t" if path.suffix == ".tsv" else ","
        lines = [separator.join(rows[0]), *(separator.join(str(v) for v in row.values()) for row in rows)]
        path.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_tables(tmp_path: Path, suffix: str) -> None:
    names = ["im/ä b.png", "im/c.png", str(tmp_path / "im/d.png")]
    for i, name in enumerate(names):
        paint(tmp_path / name, value=10 * i)
    rows: list[dict[str, object]] = [
        {"path": names[0], "label": "dog", "group": "g1", "split": "train"},
        {"path": names[1], "label": "cat", "group": "g2", "split": "test"},
        {"path": names[2], "label": "dog", "group": "g1", "split": "test"},
    ]
    table = write_table(tmp_path / f"t{suffix}", rows)
    source = image_files(table)
    assert source.names == names and source.classes == ["cat", "dog"]
    assert source.labels is not None and source.labels.tolist() == [1, 0, 1]
    assert source.groups is not None and source.groups.tolist() == [0, 1, 0]
    data = open_images(table, stored_size=4, cache=tmp_path / "cache", progress=False)
    assert data.fetch(torch.arange(3))[:, 0, 0, 0].tolist() == [0, 10, 20]
    part = image_files(table, split="test")
    assert part.labels is not None and part.labels.tolist() == [0, 1]
    assert image_files(table, labels=False).labels is None


def test_table_with_named_columns_numbers_and_missing_files(tmp_path: Path) -> None:
    paint(tmp_path / "a.png", 5)
    rows: list[dict[str, object]] = [{"where": "a.png", "kind": 3}, {"where": "gone.png", "kind": 1}]
    table = write_table(tmp_path / "t.csv", rows)
    data = open_images(
        table, stored_size=4, path_column="where", label_column="kind", cache=tmp_path / "cache", progress=False
    )
    assert data.names == ["a.png"] and data.classes == ["0", "1", "2", "3"]
    assert data.labels is not None and data.labels.tolist() == [3]
    assert lists(data.skipped, [("gone.png", "not found")])


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("path,label\na.png\n", {}, "line 2 1 field"),
        ("picture,label\na.png,1\n", {}, "column 'picture' 'label'"),
        ("path,label\na.png,1\n", {"label_column": "lable"}, "column 'lable' 'label'"),
        ("path\na.png\n", {"labels": True}, "column label"),
        ("path\n", {}, "rows"),
        ("", {}, "column"),
        ("path,split\na.png,train\n", {"split": "test"}, "split 'test' 'train'"),
        ("path,label\na.png,dgo\n", {"classes": ["cat", "dog"]}, "'dgo' 2 'dog'"),
    ],
)
def test_tables_refuse_in_one_line(
    tmp_path: Path, text: str, arguments: dict[str, str | bool | list[str]], message: str
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=facts(message)) as error:
        image_files(tmp_path / "t.csv", **arguments)  # type: ignore[arg-type]
    one_line(error)


def test_broken_lines_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"path": "a.png"}\n{"path": \n')
    with pytest.raises(ValueError, match=facts("line 2 JSON")) as error:
        image_files(tmp_path / "t.jsonl")
    one_line(error)
    (tmp_path / "t.parquet").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=facts("Parquet")) as error:
        image_files(tmp_path / "t.parquet")
    one_line(error)


def test_label_columns() -> None:
    labels, classes = label_column(["10", "2", "", "2"])
    assert labels.tolist() == [10, 2, -1, 2] and len(classes) == 11
    assert label_column(["007", "7"])[1] == ["007", "7"]
    assert label_column([1.0, float("nan")])[0].tolist() == [1, -1]
    assert label_column(["1", "cat"])[1] == ["1", "cat"]
    assert group_column([None, None, "", 3, "3"]).tolist() == [0, 1, 2, 3, 3]


GRAY = np.arange(2 * 6 * 6, dtype=np.uint8).reshape(2, 6, 6)


@pytest.mark.parametrize("form", ["N H W", "N H W 1", "N 1 H W", "N H W 3", "N 3 H W", "N H W 4"])
def test_arrays_in_every_form(tmp_path: Path, form: str) -> None:
    stacked = {
        "N H W": GRAY,
        "N H W 1": GRAY[..., None],
        "N 1 H W": GRAY[:, None],
        "N H W 3": np.stack([GRAY] * 3, -1),
        "N 3 H W": np.stack([GRAY] * 3, 1),
        "N H W 4": np.stack([GRAY] * 3 + [np.full_like(GRAY, 255)], -1),
    }[form]
    np.savez_compressed(tmp_path / "a.npz", x=stacked, y=np.array([[1], [0]]))
    data = open_images(tmp_path / "a.npz")
    assert data.size == 6 and data.labels is not None and data.labels.tolist() == [1, 0]
    assert np.array_equal(data.fetch(torch.arange(2)).numpy(), np.stack([GRAY] * 3, 1))
    small = open_images(tmp_path / "a.npz", stored_size=3, cache=tmp_path / "cache", progress=False)
    assert small.fetch(torch.arange(2)).shape == (2, 3, 3, 3)


def test_arrays_by_split_and_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train_images=GRAY, train_labels=["b", "a"], x_test=GRAY[:1])
    train, test = open_images(tmp_path / "a.npz", split="train"), open_images(tmp_path / "a.npz", split="test")
    assert (len(train), train.classes, len(test), test.classes) == (2, ["a", "b"], 1, None)
    np.save(tmp_path / "b.npy", GRAY)
    assert len(open_images(tmp_path / "b.npy")) == 2


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": GRAY}, "'z' 'x' 'images'"),
        ({"x": GRAY.astype(np.float32)}, "float32 uint8"),
        ({"x": GRAY[0]}, "(6, 6) (N, H, W)"),
        ({"x": GRAY, "y": np.arange(3)}, "2 label (3,)"),
    ],
)
def test_arrays_refuse_in_one_line(tmp_path: Path, arrays: dict[str, NDArray[np.generic]], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts(message)) as error:
        image_files(tmp_path / "a.npz")
    one_line(error)


def test_a_folder_of_tables_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,b\n")
    with pytest.raises(ValueError, match=r"train\.csv.*--data\.test"):
        image_files(tmp_path)


def test_what_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.doc").touch()
    (tmp_path / "a.npz").write_text("nonsense")
    paint(tmp_path / "one/a.png")
    for path, message in [
        (tmp_path / "empty", "image"),
        (tmp_path / "a.doc", ".doc .csv"),
        (tmp_path / "a.npz", "not an .npz file"),
        (tmp_path / "one/a.png", "image"),
    ]:
        with pytest.raises(ValueError, match=facts(message)) as error:
            image_files(path)
        one_line(error)
    with pytest.raises(ValueError, match=facts("folder")) as error:
        image_files(tmp_path / "one", labels=True)
    one_line(error)
    with pytest.raises(FileNotFoundError, match=facts("gone")):
        image_files(tmp_path / "gone")
