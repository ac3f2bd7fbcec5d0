"""Tables of images and captions: several for an image, and what is wrong skipped, counted and listed."""

import json
from pathlib import Path

import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from nearfar.data.cells import LONGEST, printable
from nearfar.data.fingerprint import fingerprint
from nearfar.modalities.image.data.opening import find_images, image_files, open_images
from tests.support.facts import facts, lists


def paint(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), value).save(path)
    return path


ROWS: list[dict[str, object]] = [
    {"image": "a.png", "caption": "a cat", "group": "x", "split": "train"},
    {"image": "b.png", "caption": "a dog, running", "group": "y", "split": "test"},
    {"image": "a.png", "caption": "ein  Kätzchen\n", "group": "x", "split": "train"},
    {"image": "a.png", "caption": "a cat", "group": "x", "split": "train"},
]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        quoted = [",".join(f'"{value}"' for value in row.values()) for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *quoted]), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("stream", [False, True])
def test_rows_of_one_image_are_one_sample(tmp_path: Path, suffix: str, stream: bool) -> None:
    for i, name in enumerate(("a.png", "b.png")):
        paint(tmp_path / name, 10 * i)
    table = write(tmp_path / f"t{suffix}", ROWS)
    data = open_images(table, stored_size=4, stream=stream, cache=tmp_path / "cache", progress=False)
    assert data.names == ["a.png", "b.png"] and data.skipped == []
    assert data.captions == [("a cat", "ein Kätzchen"), ("a dog, running",)]
    assert data.groups is not None and data.groups.tolist() == [0, 1]
    assert data.fetch(torch.arange(2))[:, 0, 0, 0].tolist() == [0, 10]
    assert data.subset(torch.tensor([1])).captions == [("a dog, running",)]
    assert image_files(table, split="test").captions == [("a dog, running",)]
    without = image_files(table, captions=False)
    assert without.captions is None and without.names == data.names


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_list_in_a_cell(tmp_path: Path, suffix: str) -> None:
    rows: list[dict[str, object]] = [
        {"path": "a.png", "sentences": ["one", "", "two"]},
        {"path": "b.png", "sentences": []},
        {"path": "c.png", "sentences": ["three"]},
    ]
    source = image_files(write(tmp_path / f"t{suffix}", rows))
    assert source.captions == [("one", "two"), ("three",)] and source.names == ["a.png", "c.png"]
    assert lists(source.skipped, [("a.png", "row 1 caption empty"), ("b.png", "row 2 caption empty")])


def test_what_is_wrong_is_listed_and_the_rest_read(tmp_path: Path) -> None:
    paint(tmp_path / "a.png")
    paint(tmp_path / "b.png")
    lines = [b"path,label,caption", b"a.png,cat,a cat", b"b.png,dog,", b"gone.png,dog,a dog", b",dog,a dog"]
    lines += [b"b.png,dog," + b"x" * (LONGEST + 1), b"b.png,dog,un caf\xe9", b"caf\xe9.png,dog,black", b"a.png,dog,no"]
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    data = open_images(tmp_path / "t.csv", stored_size=4, cache=tmp_path / "cache", progress=False)
    assert data.names == ["a.png"] and data.captions == [("a cat",)] and data.classes == ["cat", "dog"]
    assert lists(
        data.skipped,
        [
            ("b.png", "row 2 caption empty"),
            ("row 4", "path"),
            ("b.png", "row 5 caption 2,001 2,000"),
            ("b.png", "row 6 caption UTF-8"),
            ("caf\\xe9.png", "row 7 UTF-8"),
            ("a.png", "row 8 label group row 1"),
            ("gone.png", "not found"),
        ],
    )
    with pytest.raises(ValueError, match=facts("b.png row 2 caption empty")):
        open_images(tmp_path / "t.csv", stored_size=4, strict=True)


def test_other_encodings(tmp_path: Path) -> None:
    text = "Path,Caption\na.png,ein Kätzchen\nb.png,a dog\n"
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "t.csv").write_text(text, encoding=encoding)
        assert image_files(tmp_path / "t.csv").captions == [("ein Kätzchen",), ("a dog",)]
    (tmp_path / "t.csv").write_text(text, encoding="latin-1")
    source = image_files(tmp_path / "t.csv")
    assert source.captions == [("a dog",)] and "UTF-8" in source.skipped[0].reason
    (tmp_path / "t.jsonl").write_bytes(
        b'{"path": "a.png", "text": "caf\xe9"}\n{"path": "b.png", "text": "x \\ud800"}\n'
    )
    with pytest.raises(ValueError, match=facts("2 a.png UTF-8")):
        image_files(tmp_path / "t.jsonl")
    broken = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, pyarrow.py_buffer(b"\0\0\0\0\4\0\0\0\5\0\0\0"), pyarrow.py_buffer(b"caf\xe9x")]
    )
    parquet.write_table(pyarrow.table({"path": ["a.png", "b.png"], "text": broken}), tmp_path / "t.parquet")
    assert image_files(tmp_path / "t.parquet").captions == [("x",)]


def test_split_by_any_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,vendor\na.png,noto\nb.png,fluent\nc.png,twemoji\n")
    assert image_files(tmp_path / "t.csv", split="vendor=fluent").names == ["b.png"]
    assert image_files(tmp_path / "t.csv", split="vendor!=fluent").names == ["a.png", "c.png"]
    assert image_files(f"{tmp_path / 't.csv'}:vendor=fluent", split="test").names == ["b.png"]
    assert find_images(f"{tmp_path / 't.csv'}:vendor!=fluent").names == ["a.png", "c.png"]
    with pytest.raises(ValueError, match=facts("column 'vender' 'vendor'")):
        image_files(tmp_path / "t.csv", split="vender=fluent")
    with pytest.raises(ValueError, match=facts("vendor 'apple' 'noto' 'fluent' 'twemoji'")):
        image_files(tmp_path / "t.csv", split="vendor=apple")


def test_unquoted_tabs(tmp_path: Path) -> None:
    """GLUE's files have quotes that open and never close; Excel's have quotes around fields."""
    (tmp_path / "t.tsv").write_text('path\tcaption\na.png\t"so\nb.png\tsaid "he"\n')
    assert image_files(tmp_path / "t.tsv").captions == [('"so',), ('said "he"',)]
    (tmp_path / "t.tsv").write_text('path\tcaption\na.png\t"so ""he"" said"\n')
    assert image_files(tmp_path / "t.tsv").captions == [('so "he" said',)]


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b"path\na.png\n", {"captions": True}, "column caption --data.caption_column"),
        (b"path,words\na.png,x\n", {"caption_column": "word"}, "column 'word' 'words'"),
        (b"path,caption\na.png,\n", {}, "row 1 caption empty"),
        (b"path,b\xe9\na.png,x\n", {}, r"UTF-8 b\\xe9"),
        (b'path,caption\na.png,"' + b"x" * 140_000, {}, "line 2 quote"),
    ],
)
def test_refuses_in_one_line(tmp_path: Path, content: bytes, arguments: dict[str, str | bool], message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=facts(message)) as error:
        image_files(tmp_path / "t.csv", **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_images_elsewhere(tmp_path: Path) -> None:
    paint(tmp_path / "far" / "a.png", 7)
    (tmp_path / "t.csv").write_text("path,title\na.png,a cat\n")
    data = open_images(
        tmp_path / "t.csv", root=tmp_path / "far", stored_size=4, cache=tmp_path / "cache", progress=False
    )
    assert data.fetch(torch.tensor([0]))[0, 0, 0, 0] == 7
    with pytest.raises(ValueError, match=facts("folder caption table")):
        open_images(tmp_path / "far", captions=True)


def test_captions_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    paint(tmp_path / "a.png")
    seen = set()
    for caption in ("a cat", "a dog", "a cat"):
        (tmp_path / "t.csv").write_text(f"path,caption\na.png,{caption}\n")
        seen.add(fingerprint(open_images(tmp_path / "t.csv", stored_size=4, stream=True)))
    assert len(seen) == 2


def test_printable() -> None:
    assert printable("Kätzchen") == "Kätzchen" and printable("a\ud800\udce9") == "a\\ud800\\udce9"
