"""Files of embeddings: path, label and vector of each row, read a piece at a time.

.parquet holds all three and, in its metadata, which encoder and data they are from; .npz the same as arrays; .npy the
vectors alone, with path and label in NAME.npy.csv.
"""

import csv
import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from numpy.typing import NDArray
from pyarrow import parquet
from torch import Tensor

from nearfar.data.parquet_files import open_parquet, read_parquet
from nearfar.messages import one_line
from nearfar.safe_read import check_archive, check_ratio, opened_npz
from nearfar.search.location import Location, location_of

SUFFIXES = (".parquet", ".npz", ".npy")
METADATA = b"nearfar"
PIECE = 64 << 20  # bytes of vectors read at a time
# What the readers raise for damaged files: numpy reads a header as Python, and zipfile knows passwords and methods.
_BROKEN = (
    *(pyarrow.ArrowException, zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, AttributeError),
    *(UnicodeError, SyntaxError, tokenize.TokenError, NotImplementedError, RuntimeError, MemoryError, csv.Error),
)


class Embeddings:
    """N vectors of F numbers in a file, with the name and label of each.

    Attributes:
        path: of the file.
        dim: F.
        about: which encoder and data they are from, where the file says so.
        half: whether they are stored as float16.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.suffix = self.path.suffix.lower()
        if self.suffix not in SUFFIXES:
            raise ValueError(f"{self.path} has the suffix {self.suffix!r}, expected {', '.join(SUFFIXES)}")
        if not self.path.is_file():
            raise FileNotFoundError(f"there is no file {str(self.path)!r}; nearfar embed RUN DATA -o FILE writes one")
        self.about: dict[str, Any] = {}
        self._read: Callable[[], Iterator[NDArray[Any]]]
        with self._errors_named(*_BROKEN):
            self._open_parquet() if self.suffix == ".parquet" else self._open_numpy()
        if self._count == 0 or self.dim == 0:
            raise ValueError(f"{self.path} has {self._count} vectors of {self.dim} numbers, expected at least one")

    def __len__(self) -> int:
        return self._count

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        """All N rows in pieces: the number of the first row, and (C, F) float32."""
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
        """N texts, such as paths; the number of a row that has none."""
        found = self._column("path") or [None] * len(self)
        return [str(i) if name is None else name for i, name in enumerate(found)]

    def labels(self) -> Sequence[str | None] | None:
        """N class names, or None where there are none."""
        return self._column("label")

    def location(self, given: str | None = None) -> Location:
        """Where the samples are: as the user says, else as the file says, if it may."""
        return location_of(self.path, self.about).by(given)

    def _open_parquet(self) -> None:
        file = open_parquet(self.path)
        schema = file.schema_arrow
        self._count = int(file.metadata.num_rows)
        if "vector" not in schema.names:
            raise ValueError(f"{self.path} has the columns {', '.join(schema.names)}, expected one called vector")
        stored = schema.field("vector").type
        if not pyarrow.types.is_fixed_size_list(stored) or not pyarrow.types.is_floating(stored.value_type):
            raise ValueError(f"{self.path}: vector is {stored}, expected float lists of one length")
        self.dim, self.half = int(stored.list_size), stored.value_type == pyarrow.float16()
        check_ratio(self.path, 4 * self._count * self.dim)
        self._read = lambda: self._read_parquet(file)
        self.about = parse_about((schema.metadata or {}).get(METADATA, b"{}"))

    def _open_numpy(self) -> None:
        with self._errors_named(ValueError, OSError, *_BROKEN):  # pickled content is never loaded
            if self.suffix == ".npz":
                check_archive(self.path)
            vectors = np.load(self.path, mmap_mode="r" if self.suffix == ".npy" else None, allow_pickle=False)
        if self.suffix == ".npz":
            self._archive = vectors
            if "vector" not in vectors.files:
                found = ", ".join(vectors.files[:8]) or "none"
                raise ValueError(f"{self.path} has the arrays {found}, expected one called vector")
            self.about = parse_about(str(self._member("about")).encode() if "about" in vectors.files else b"{}")
            vectors = self._member("vector")
        if vectors.ndim != 2 or vectors.dtype.kind != "f":
            raise ValueError(f"{self.path} holds {vectors.dtype} of shape {vectors.shape}, expected (N, F) floats")
        self._count, self.dim = map(int, vectors.shape)
        self.half = vectors.dtype == np.float16
        rows = max(1, PIECE // (4 * max(self.dim, 1)))
        self._read = lambda: (vectors[start : start + rows] for start in range(0, self._count, rows))

    def _read_parquet(self, file: parquet.ParquetFile) -> Iterator[NDArray[Any]]:
        with self._errors_named(OSError, *_BROKEN):
            for batch in file.iter_batches(max(1, PIECE // (4 * self.dim)), columns=["vector"]):
                column = batch.column(0)
                if column.null_count:
                    raise ValueError(f"{self.path} has {column.null_count} rows without a vector, expected none")
                yield column.flatten().to_numpy(zero_copy_only=False).reshape(-1, self.dim)

    def _column(self, name: str) -> list[Any] | None:
        with self._errors_named(*_BROKEN):
            return self._read_column(name)

    def _read_column(self, name: str) -> list[Any] | None:
        if self.suffix == ".parquet":
            if name not in parquet.read_schema(self.path).names:
                return None
            values: list[Any] = read_parquet(self.path, [name]).column(0).to_pylist()
        elif self.suffix == ".npz":
            if name not in self._archive.files:
                return None
            values = [str(value) or None for value in self._member(name).tolist()]
        else:
            if not npy_table(self.path).is_file():
                return None
            with npy_table(self.path).open(encoding="utf-8", newline="") as file:
                values = [row.get(name) or None for row in csv.DictReader(file)]
        if len(values) != len(self):
            raise ValueError(f"{self.path} has {len(self)} vectors and {len(values)} of {name}, expected one for each")
        return None if all(value is None for value in values) else [v if v is None else str(v) for v in values]

    def _member(self, name: str) -> NDArray[Any]:
        with self._errors_named(ValueError, OSError, *_BROKEN):
            member: NDArray[Any] = self._archive[name]
            if not isinstance(member, np.ndarray):
                raise ValueError(f"{name} is no array")
            return member

    @contextmanager
    def _errors_named(self, *kinds: type[Exception]) -> Iterator[None]:
        """Turns these errors of a reader into one that names the file."""
        try:
            yield
        except kinds as error:
            text = f"{self.path} is not a readable {self.path.suffix} file ({one_line(error, 120)})"
            raise ValueError(f"{text}; embed the data again") from None


def sample_embeddings(path: str | Path) -> Embeddings:
    """A file with a row for each sample; a file of frames is refused."""
    file = Embeddings(path)
    if file.about.get("frames"):
        raise ValueError(f"{file.path} has a row for each frame, expected one for each sample: embed without --frames")
    return file


def output_suffix(path: Path) -> str:
    """The suffix of a file to write; an error where it is unknown."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"the output is {str(path)!r}, expected a name that ends in {', '.join(SUFFIXES)}")
    return path.suffix.lower()


def npy_table(path: Path) -> Path:
    """Where paths and labels of an .npy file are.

    >>> npy_table(Path("photos.npy")).name
    'photos.npy.csv'
    """
    return path.with_name(f"{path.name}.csv")


def read_about(path: Path) -> dict[str, Any] | None:
    """Encoder and data that a file was made from, empty for .npy; None where `nearfar embed` did not write it."""
    try:
        match path.suffix.lower():
            case ".parquet":
                return parse_about(parquet.read_schema(path).metadata[METADATA]) or None
            case ".npz":
                with opened_npz(path) as content:
                    return parse_about(str(content["about"]).encode()) or None
    except (OSError, ValueError, *_BROKEN):
        return None
    return {} if path.is_file() and npy_table(path).is_file() else None


def parse_about(text: bytes) -> dict[str, Any]:
    """The JSON object that says which encoder and data a file is from; empty where it cannot be read."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}
