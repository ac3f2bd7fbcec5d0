"""Chunks of embeddings in a folder beside the output, joined into one file at the end.

Each chunk is written whole or not at all, so a killed run continues after its last chunk. Joining reads one chunk at a
time: memory does not grow with the number of rows.
"""

import csv
import io
import json
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.lib import format as npy
from numpy.typing import NDArray
from pyarrow import parquet

from nearfar.data.cache import replacing, write_file
from nearfar.data.dataset import Skipped
from nearfar.data.store import reserve
from nearfar.messages import shown
from nearfar.search.files import METADATA, npy_table, output_suffix, parse_about

SKIPPED = b"skipped"
_DIGESTS = {"encoder": "another encoder", "names": "other samples", "labels": "other labels"}


def chunk_folder(out: Path) -> Path:
    """Where the chunks of an output are until it is complete."""
    return out.with_name(f"{out.name}.parts")


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """In what embeddings differ.

    >>> difference({"encoder": "af01", "chunk": 8}, {"encoder": "77b2", "chunk": 16})
    'another encoder, chunk 8 instead of 16'
    """
    found = [
        _DIGESTS.get(key) or f"{key} {shown(before.get(key))} instead of {shown(value)}"
        for key, value in now.items()
        if before.get(key) != value
    ]
    return ", ".join(found) or "other settings"


class ChunkFolder:
    """The chunks of one output.

    Args:
        out: the file they will become.
        about: which encoder and data they are from; chunks of anything else are deleted.

    Attributes:
        dropped: in what deleted chunks differed; empty where none were deleted.
    """

    def __init__(self, out: Path, about: dict[str, Any]) -> None:
        self.out, self.about, self.suffix = out, about, output_suffix(out)
        self.folder, self.dropped = chunk_folder(out), ""
        note = self.folder / "about.json"
        text = note.read_text(encoding="utf-8", errors="replace") if note.is_file() else ""
        if text != json.dumps(about):
            for old in self.folder.glob("*.parquet"):
                self.dropped = difference(parse_about(text.encode()), about)
                old.unlink()
            write_file(note, json.dumps(about))

    def done(self) -> set[int]:
        """Numbers of the finished chunks."""
        return {int(path.stem) for path in self.folder.glob("*.parquet") if path.stem.isdecimal()}

    def write(
        self,
        number: int,
        names: Sequence[str],
        labels: Sequence[str | None],
        vectors: NDArray[np.floating[Any]],
        skipped: Sequence[Skipped] = (),
        **columns: NDArray[Any],
    ) -> None:
        """One chunk: (C, F) vectors, C may be 0, with names, labels and other columns, and the samples that failed."""
        values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
        texts = [pyarrow.array(column, pyarrow.string()) for column in (names, labels)]
        table = pyarrow.table([*texts, *columns.values(), values], names=["path", "label", *columns, "vector"])
        table = table.replace_schema_metadata({SKIPPED: json.dumps([astuple(s) for s in skipped])})
        with replacing(self.folder / f"{number:09d}.parquet") as fresh:
            parquet.write_table(table, fresh, compression="NONE", use_dictionary=["label"], write_statistics=False)

    def finish(self) -> tuple[int, list[Skipped]]:
        """Join the chunks and delete them; returns the number of rows and the samples that could not be read."""
        paths = [self.folder / f"{number:09d}.parquet" for number in sorted(self.done())]
        rows = sum(int(parquet.read_metadata(path).num_rows) for path in paths)
        skipped = [Skipped(*s) for path in paths for s in json.loads(parquet.read_schema(path).metadata[SKIPPED])]
        if rows == 0:
            first = f": {skipped[0].path}: {skipped[0].reason}" if skipped else ""
            raise ValueError(f"none of the samples could be read, so {self.out} was not written{first}")
        with replacing(self.out) as fresh:
            if self.suffix == ".parquet":
                self._join_parquet(paths, fresh)
            elif self.suffix == ".npz":
                self._join_npz(paths, rows, fresh)
            else:
                self._join_npy(paths, rows, fresh)
        shutil.rmtree(self.folder)
        return rows, skipped

    def _join_parquet(self, paths: list[Path], fresh: Path) -> None:
        schema = parquet.read_schema(paths[0]).with_metadata({METADATA: json.dumps(self.about).encode()})
        compression = {"path": "ZSTD", "label": "ZSTD", "vector.list.element": "NONE"}
        with parquet.ParquetWriter(fresh, schema, compression=compression, use_dictionary=["label"]) as writer:
            for table in _tables(paths):
                if len(table):
                    writer.write_table(table.replace_schema_metadata(schema.metadata))

    def _join_npz(self, paths: list[Path], rows: int, fresh: Path) -> None:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as archive:
            for field in parquet.read_schema(paths[0]):
                name = field.name
                pieces: Iterable[NDArray[Any]]
                if field.type == pyarrow.string():
                    longest = max(len(value) for column in _texts(paths, name) for value in column)
                    kind = np.dtype(f"<U{max(longest, 1)}")
                    pieces = (np.array(column, kind) for column in _texts(paths, name))
                elif name == "vector":
                    width, kind = _vector_type(paths)
                    pieces = (_vectors(table).reshape(-1, width) for table in _tables(paths))
                else:
                    kind = np.dtype(field.type.to_pandas_dtype())
                    pieces = (table.column(name).to_numpy() for table in _tables(paths))
                _add_array(archive, name, (rows, width) if name == "vector" else (rows,), kind, pieces)
            about = np.array(json.dumps(self.about))
            _add_array(archive, "about", (), about.dtype, [about])

    def _join_npy(self, paths: list[Path], rows: int, fresh: Path) -> None:
        with replacing(npy_table(self.out)) as beside, beside.open("w", encoding="utf-8", newline="") as text:
            lines = csv.writer(text)
            lines.writerow(["path", "label"])
            for table in _tables(paths):
                lines.writerows(zip(*(table.column(c).to_pylist() for c in ("path", "label")), strict=True))
        width, kind = _vector_type(paths)
        array, start = npy.open_memmap(fresh, mode="w+", dtype=kind, shape=(rows, width)), 0
        reserve(fresh, fresh.stat().st_size)
        for table in _tables(paths):
            array[start : start + len(table)] = _vectors(table).reshape(-1, width)
            start += len(table)
        array.flush()


def _tables(paths: list[Path]) -> Iterator[Any]:
    for path in paths:
        yield parquet.read_table(path, memory_map=True)


def _texts(paths: list[Path], name: str) -> Iterator[list[str]]:
    """A column by chunks: reading it twice costs less than holding all of it."""
    for table in _tables(paths):
        yield [value or "" for value in table.column(name).to_pylist()]


def _vectors(table: Any) -> NDArray[Any]:
    chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table.column("vector").chunks]
    return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)


def _vector_type(paths: list[Path]) -> tuple[int, np.dtype[Any]]:
    """Length of a vector, and the type of its numbers."""
    stored = parquet.read_schema(paths[0]).field("vector").type
    return int(stored.list_size), np.dtype(np.float16 if stored.value_type == pyarrow.float16() else np.float32)


def _add_array(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], kind: np.dtype[Any], pieces: Iterable[NDArray[Any]]
) -> None:
    """Write an array of an .npz file piece by piece."""
    head = io.BytesIO()
    npy.write_array_header_2_0(head, {"descr": kind.str, "fortran_order": False, "shape": shape})
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        member.write(head.getvalue())
        for piece in pieces:
            member.write(piece.tobytes())
