"""Embeddings in a file: path, label and vector of each row, read a piece at a time.

.parquet holds all three and, in its metadata, which encoder and data they are of; .npz the same as arrays; .npy the
vectors alone, with path and label in NAME.npy.csv beside it.
"""

import csv
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from numpy.typing import NDArray
from pyarrow import parquet
from torch import Tensor

KINDS = (".parquet", ".npz", ".npy")
METADATA = b"nearfar"
PIECE = 64 << 20  # bytes of vectors read at a time


class Embeddings:
    """N vectors of F numbers in a file, and the name and label of each.

    Attributes:
        path: of the file.
        dim: F.
        about: which encoder and data they are of, where the file says so.
        half: whether they are stored in 16 bits.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        if self.path.suffix.lower() not in KINDS:
            raise ValueError(f"{self.path} is a {self.path.suffix or 'file without a suffix'}, expected {_kinds()}")
        if not self.path.is_file():
            raise FileNotFoundError(f"there is no file {str(self.path)!r}; nearfar embed RUN DATA -o FILE writes one")
        try:
            self._open()
        except (pyarrow.ArrowException, zipfile.BadZipFile, EOFError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(error) from None
        if self._count == 0 or self.dim == 0:
            raise ValueError(f"{self.path} has {self._count} vectors of {self.dim} numbers, expected at least one")

    def __len__(self) -> int:
        return self._count

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        """The number of a first row, and (C, F) float32 rows from there on, until all N were there."""
        start = 0
        for values in self._read():
            x = torch.from_numpy(np.array(values, np.float32))  # (C, F)
            bad = int((~x.isfinite().all(1)).sum())
            if bad:
                raise ValueError(f"{self.path}: {bad} vectors from row {start} on are not finite; embed the data again")
            yield start, x
            start += len(x)
        if start != self._count:
            raise ValueError(f"{self.path} ends after {start} of {self._count} rows; embed the data again")

    def names(self) -> Sequence[str]:
        """N texts: where each row came from; its number where the file does not say."""
        return self._column("path") or [str(i) for i in range(len(self))]

    def labels(self) -> Sequence[str | None] | None:
        """N names of classes, or None where there are none."""
        return self._column("label")

    # Each kind of file

    def _open(self) -> None:
        kind = self.path.suffix.lower()
        self.about: dict[str, Any] = {}
        if kind == ".parquet":
            file = parquet.ParquetFile(self.path)
            schema = file.schema_arrow
            self._count = int(file.metadata.num_rows)
            if "vector" not in schema.names:
                raise ValueError(f"{self.path} has the columns {', '.join(schema.names)}, expected one called vector")
            stored = schema.field("vector").type
            if not pyarrow.types.is_fixed_size_list(stored) or not pyarrow.types.is_floating(stored.value_type):
                raise ValueError(f"{self.path}: vector is {stored}, expected lists of one length of floating point")
            self.dim, self.half = int(stored.list_size), stored.value_type == pyarrow.float16()
            self._read: Callable[[], Iterator[NDArray[Any]]] = lambda: self._read_parquet(file)
            self.about = about_of((schema.metadata or {}).get(METADATA, b"{}"))
        else:
            vectors = self._loaded()
            if kind == ".npz":
                self._archive = vectors
                if "vector" not in vectors.files:
                    shown = ", ".join(vectors.files[:8]) or "none"
                    raise ValueError(f"{self.path} has the arrays {shown}, expected one called vector")
                self.about = about_of(str(self._member("about")).encode() if "about" in vectors.files else b"{}")
                vectors = self._member("vector")
            if vectors.ndim != 2 or vectors.dtype.kind != "f":
                raise ValueError(f"{self.path} holds {vectors.dtype} of shape {vectors.shape}, expected (N, F) floats")
            self._count, self.dim = map(int, vectors.shape)
            self.half = vectors.dtype == np.float16
            rows = max(1, PIECE // (4 * max(self.dim, 1)))
            self._read = lambda: (vectors[start : start + rows] for start in range(0, self._count, rows))

    def _read_parquet(self, file: parquet.ParquetFile) -> Iterator[NDArray[Any]]:
        try:
            for batch in file.iter_batches(max(1, PIECE // (4 * self.dim)), columns=["vector"]):
                column = batch.column(0)
                if column.null_count:
                    raise ValueError(f"{self.path} has {column.null_count} rows without a vector, expected none")
                yield column.flatten().to_numpy(zero_copy_only=False).reshape(-1, self.dim)
        except (pyarrow.ArrowException, OSError) as error:
            raise self._unreadable(error) from None

    def _column(self, name: str) -> list[Any] | None:
        kind = self.path.suffix.lower()
        if kind == ".parquet":
            file = parquet.ParquetFile(self.path)
            if name not in file.schema_arrow.names:
                return None
            values: list[Any] = file.read(columns=[name]).column(0).to_pylist()
        elif kind == ".npz":
            if name not in self._archive.files:
                return None
            values = [str(value) or None for value in self._member(name).tolist()]
        else:
            beside = beside_npy(self.path)
            if not beside.is_file():
                return None
            with beside.open(encoding="utf-8", newline="") as file:
                values = [row.get(name) or None for row in csv.DictReader(file)]
        if len(values) != len(self):
            raise ValueError(f"{self.path} has {len(self)} vectors and {len(values)} of {name}, expected one for each")
        return None if all(value is None for value in values) else [v if v is None else str(v) for v in values]

    def _loaded(self) -> Any:
        """numpy's own, which never unpickles."""
        try:
            return np.load(self.path, mmap_mode="r" if self.path.suffix.lower() == ".npy" else None, allow_pickle=False)
        except (ValueError, OSError) as error:
            raise self._unreadable(error) from None

    def _member(self, name: str) -> NDArray[Any]:
        try:
            member: NDArray[Any] = self._archive[name]
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise self._unreadable(error) from None
        return member

    def _unreadable(self, error: Exception) -> ValueError:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:120]
        return ValueError(f"{self.path} is not a readable {self.path.suffix} file ({reason}); embed the data again")


def check_kind(path: Path) -> str:
    """The suffix of a file to be written."""
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"the output is {str(path)!r}, expected a name that ends in {_kinds()}")
    return path.suffix.lower()


def beside_npy(path: Path) -> Path:
    """Where paths and labels of an .npy file are: a name that no table of the user's own has.

    >>> beside_npy(Path("photos.npy")).name
    'photos.npy.csv'
    """
    return path.with_name(f"{path.name}.csv")


def stated(path: Path) -> dict[str, Any] | None:
    """What a finished file says of itself, an .npy nothing; None where `nearfar embed` did not write it."""
    try:
        match path.suffix.lower():
            case ".parquet":
                return about_of(parquet.read_schema(path).metadata[METADATA]) or None
            case ".npz":
                with np.load(path, allow_pickle=False) as content:
                    return about_of(str(content["about"]).encode()) or None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, pyarrow.ArrowException):
        return None
    return {} if path.is_file() and beside_npy(path).is_file() else None


def _kinds() -> str:
    return f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"


def of_samples(path: str | Path) -> Embeddings:
    """A file with a row for each sample; one of frames in time is refused."""
    file = Embeddings(path)
    if file.about.get("frames"):
        raise ValueError(f"{file.path} has a row for each frame, expected one for each sample: embed without --frames")
    return file


def about_of(text: bytes) -> dict[str, Any]:
    """What a file says of itself; nothing where that cannot be read."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}
