"""Parquet and Arrow files that claim more than they hold, or hold one value a million times."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from nearfar.data.parquet_files import read_parquet
from nearfar.data.tables import read_columns
from nearfar.modalities.image.data.hugging_face import TableImages, image_tables
from nearfar.modalities.image.data.opening import image_files, open_images
from nearfar.search.files import Embeddings
from tests.support.facts import facts

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def vectors(rows: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.full(rows * 8, 0.5, np.float32)), 8)


@pytest.mark.parametrize("kind", ["captions", "images", "names", "labels"])
def test_a_value_that_stands_for_many_rows_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearfar.safe_read.SMALL", 3_000_000)
    rows, names, text, path = 1000, [str(i) for i in range(1000)], "x" * 10_000, tmp_path / "a.parquet"
    tables: dict[str, dict[str, Any]] = {
        "captions": {"path": names, "caption": pa.array([[text]] * rows)},
        "images": {"image": pa.array([{"bytes": text.encode(), "path": None}] * rows, IMAGE)},
        "names": {"path": [text] * rows, "vector": vectors(rows)},
        "labels": {"path": names, "label": [text] * rows, "vector": vectors(rows)},
    }
    parquet.write_table(pa.table(tables[kind]), path, compression="zstd")
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match=facts("unpacks")):
        if kind == "images":
            open_images(path, stored_size=16, cache=tmp_path / "cache", progress=False)
        elif kind == "captions":
            read_columns(path)
        else:
            file = Embeddings(path)
            file.names(), file.labels()


def test_counts_of_rows_that_are_not_there(tmp_path: Path) -> None:
    """Arrow asks for memory by the rows of a group: 1 kB named 69,908,493,950 of them, and the process was killed."""
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"path": [f"{i}.png" for i in range(77)], "vector": vectors(77)}), path)
    content, right = path.read_bytes(), b"\x16" + bytes([2 * 77 & 127 | 128, 2 * 77 >> 7])  # as thrift writes 77
    lying = b"\x16" + b"\xfc\xff\xff\xff\xff\x07"
    end = content.rindex(right)
    changed = content[:end] + lying + content[end + len(right) : -8]
    length = struct.unpack("<I", content[-8:-4])[0] + len(lying) - len(right)
    path.write_bytes(changed + struct.pack("<I", length) + b"PAR1")
    assert parquet.read_metadata(path).row_group(0).num_rows > 10**9
    for open_ in (read_columns, Embeddings, lambda file: image_files(file).items):
        with pytest.raises(ValueError, match=facts("parquet")):
            open_(path)


def test_a_table_is_read_as_arrow_reads_it(tmp_path: Path) -> None:
    names = [f"{i}.png" for i in range(1000)]
    columns = {"path": names, "n": [None, 1, 2, 3] * 250, "c": [["x"], [], None, ["y"]] * 250}
    path, table = tmp_path / "a.parquet", pa.table(columns)
    parquet.write_table(table, path, row_group_size=300)
    assert read_parquet(path).equals(table) and read_parquet(path, ["n"], group=1).equals(table.select(["n"])[300:600])
    parquet.write_table(table[:0], path)
    assert read_parquet(path).equals(table[:0]) and read_parquet(path, ["n"]).column_names == ["n"]


def test_an_arrow_file_with_offsets_beyond_its_end(tmp_path: Path) -> None:
    """They were followed: the process ended by SIGSEGV, or showed what else was in memory."""
    (tmp_path / "state.json").write_text("{}")
    file, marked = tmp_path / "data-00000-of-00001.arrow", 123_456_789
    cells = pa.array([{"bytes": b"a" * 100, "path": None}] * 3, IMAGE)
    with pa.ipc.new_stream(file, pa.schema([("image", IMAGE), ("n", pa.int64())])) as stream:
        stream.write_table(pa.table({"image": cells, "n": [marked] * 3}))
    content = file.read_bytes()
    place = content.index(struct.pack("<4i", 0, 100, 200, 300))
    file.write_bytes(content[:place] + struct.pack("<4i", 0, 100, 200, 2_000_000_000) + content[place + 16 :])
    assert image_tables(tmp_path) == [file]
    with pytest.raises(ValueError, match=facts("cannot be read")):
        image_files(tmp_path)


def test_a_cell_that_names_a_device(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"image": pa.array([{"bytes": None, "path": "/dev/zero"}], IMAGE)}), path)
    with pytest.raises(ValueError, match=facts("device")):
        TableImages([path], "image", tmp_path)[0]
