"""Embeddings in the making: finished chunks in a folder beside the output, put together at the end.

Each chunk is written whole or not at all, so a run that was killed goes on after its last finished chunk. Putting
together reads one chunk at a time: memory does not grow with the number of rows.
"""

import csv
import io
import json
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.lib import format as npy
from numpy.typing import NDArray
from pyarrow import parquet

from nearfar.data.cache import replacing
from nearfar.data.dataset import Skipped
from nearfar.model.card import shown
from nearfar.search.files import METADATA, about_of, beside_npy, check_kind

SKIPPED = b"skipped"


def parts_folder(out: Path) -> Path:
    """Where the chunks of an output lie until it is whole."""
    return out.with_name(f"{out.name}.parts")


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What embeddings differ in, in words.

    >>> difference({"encoder": "af01", "chunk": 8}, {"encoder": "77b2", "chunk": 16})
    'another encoder, chunk 8 instead of 16'
    """
    words = {"encoder": "another encoder", "names": "other images", "labels": "other labels"}  # these are digests
    told = [
        words.get(key) or f"{key} {shown(before.get(key))} instead of {shown(value)}"
        for key, value in now.items()
        if before.get(key) != value
    ]
    return ", ".join(told) or "other settings"


class Parts:
    """The chunks of one output.

    Args:
        out: the file they will become.
        about: what they are of; parts of anything else are thrown away.

    Attributes:
        dropped: what the parts that were thrown away differ in, in words; empty where none were.
    """

    def __init__(self, out: Path, about: dict[str, Any]) -> None:
        self.out, self.about, self.kind = out, about, check_kind(out)
        self.folder = parts_folder(out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.dropped = ""
        stated = self.folder / "about.json"
        text = stated.read_text(encoding="utf-8", errors="replace") if stated.is_file() else ""
        if text != json.dumps(about):
            for old in self.folder.glob("*.parquet"):
                self.dropped = difference(about_of(text.encode()), about)
                old.unlink()
            with replacing(stated) as fresh:
                fresh.write_text(json.dumps(about), encoding="utf-8")

    def done(self) -> set[int]:
        """The numbers of the chunks that are there."""
        return {int(path.stem) for path in self.folder.glob("*.parquet") if path.stem.isdecimal()}

    def write(
        self,
        number: int,
        names: Sequence[str],
        labels: Sequence[str | None],
        vectors: NDArray[np.floating[Any]],
        skipped: Sequence[Skipped] = (),
    ) -> None:
        """One chunk: (C, F) vectors, which may be none, with their names and labels, and what could not be read."""
        values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
        texts = [pyarrow.array(column, pyarrow.string()) for column in (names, labels)]
        table = pyarrow.table([*texts, values], names=["path", "label", "vector"])
        table = table.replace_schema_metadata({SKIPPED: json.dumps([astuple(s) for s in skipped])})
        with replacing(self.folder / f"{number:09d}.parquet") as fresh:
            parquet.write_table(table, fresh, compression="NONE", use_dictionary=["label"], write_statistics=False)

    def finish(self) -> tuple[int, list[Skipped]]:
        """Put the chunks together, then remove them; returns the number of rows and what could not be read."""
        paths = [self.folder / f"{number:09d}.parquet" for number in sorted(self.done())]
        rows = sum(int(parquet.read_metadata(path).num_rows) for path in paths)
        skipped = [Skipped(*s) for path in paths for s in json.loads(parquet.read_schema(path).metadata[SKIPPED])]
        if rows == 0:
            first = f": {skipped[0].path}: {skipped[0].reason}" if skipped else ""
            raise ValueError(f"none of the images could be read, so {self.out} was not written{first}")
        with replacing(self.out) as fresh:
            if self.kind == ".parquet":
                self._as_parquet(paths, fresh)
            elif self.kind == ".npz":
                self._as_npz(paths, rows, fresh)
            else:
                self._as_npy(paths, rows, fresh)
        shutil.rmtree(self.folder)
        return rows, skipped

    def _as_parquet(self, paths: list[Path], fresh: Path) -> None:
        schema = parquet.read_schema(paths[0]).with_metadata({METADATA: json.dumps(self.about).encode()})
        compression = {"path": "ZSTD", "label": "ZSTD", "vector.list.element": "NONE"}
        with parquet.ParquetWriter(fresh, schema, compression=compression, use_dictionary=["label"]) as writer:
            for table in _tables(paths):
                if len(table):
                    writer.write_table(table.replace_schema_metadata(schema.metadata))

    def _as_npz(self, paths: list[Path], rows: int, fresh: Path) -> None:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as archive:
            for name in ("path", "label"):
                longest = max(len(value) for column in _texts(paths, name) for value in column)
                kind = np.dtype(f"<U{max(longest, 1)}")
                _into_zip(archive, name, (rows,), kind, (np.array(c, kind) for c in _texts(paths, name)))
            shape, kind = (rows, _width(paths)), _type(paths)
            _into_zip(archive, "vector", shape, kind, (_vectors(t) for t in _tables(paths)))
            _into_zip(archive, "about", (), *_text(json.dumps(self.about)))

    def _as_npy(self, paths: list[Path], rows: int, fresh: Path) -> None:
        with replacing(beside_npy(self.out)) as beside, beside.open("w", encoding="utf-8", newline="") as text:
            lines = csv.writer(text)
            lines.writerow(["path", "label"])
            for table in _tables(paths):
                lines.writerows(zip(*(table.column(c).to_pylist() for c in ("path", "label")), strict=True))
        with fresh.open("wb") as file:
            _header(file, (rows, _width(paths)), _type(paths))
            for table in _tables(paths):
                file.write(_vectors(table).tobytes())


def _tables(paths: list[Path]) -> Iterator[Any]:
    for path in paths:
        yield parquet.read_table(path, memory_map=True)


def _texts(paths: list[Path], name: str) -> Iterator[list[str]]:
    """A column, a chunk at a time: twice read costs less than all in memory."""
    for table in _tables(paths):
        yield [value or "" for value in table.column(name).to_pylist()]


def _vectors(table: Any) -> NDArray[Any]:
    chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table.column("vector").chunks]
    return np.concatenate(chunks) if chunks else np.zeros(0, _numpy(table.schema))


def _numpy(schema: Any) -> np.dtype[Any]:
    half = schema.field("vector").type.value_type == pyarrow.float16()
    return np.dtype(np.float16 if half else np.float32)


def _type(paths: list[Path]) -> np.dtype[Any]:
    return _numpy(parquet.read_schema(paths[0]))


def _width(paths: list[Path]) -> int:
    return int(parquet.read_schema(paths[0]).field("vector").type.list_size)


def _text(text: str) -> tuple[np.dtype[Any], Iterator[NDArray[Any]]]:
    array = np.array(text)
    return array.dtype, iter([array])


def _header(file: Any, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
    npy.write_array_header_2_0(file, {"descr": kind.str, "fortran_order": False, "shape": shape})


def _into_zip(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], kind: np.dtype[Any], pieces: Iterator[NDArray[Any]]
) -> None:
    """An array of an .npz file, written piece by piece."""
    head = io.BytesIO()
    _header(head, shape, kind)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        member.write(head.getvalue())
        for piece in pieces:
            member.write(piece.tobytes())
