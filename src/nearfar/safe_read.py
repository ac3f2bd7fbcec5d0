"""One guard for files that may be anyone's: no devices, no more bytes than expected, none that unpack beyond memory.

Depth is limited where text is parsed: JSON by Python's recursion limit, told as a line; YAML in `yaml_reader`.
"""

import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEXT = 64 << 20  # bytes of a file of settings, results or notes
LOG = 1 << 30  # bytes of a log that grows with the steps
RATIO = 100  # bytes unpacked to one packed; honest arrays and tables have less than 30
# What zipfile and numpy raise for a broken archive; RuntimeError for one with a password
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError, MemoryError)
SMALL = 256 << 20  # bytes unpacked, below which any ratio is fine


def regular(path: Path) -> Path:
    """A pipe would be waited for without end, and a device has none."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a folder, a device or a pipe, expected a file")
    return path


def read_bytes(path: Path, most: int = TEXT) -> bytes:
    """The whole of a file of at most so many bytes; a file that grows meanwhile is not read without end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ValueError(f"{path} is a device or a pipe, expected a file")
        content = file.read(min(state.st_size, most) + 1) if state.st_size <= most else b""
        if state.st_size > most or len(content) > most:
            raise ValueError(f"{path} has {state.st_size:,} bytes, expected at most {most >> 20} MB")
        return content + file.read(most - len(content))


def read_text(path: Path, most: int = TEXT, *, errors: str = "strict") -> str:
    return read_bytes(path, most).decode("utf-8", errors)


def read_json(path: Path, most: int = TEXT) -> Any:
    """What a file of JSON holds; ValueError where it is none, nested too deeply or too long."""
    try:
        return json.loads(read_text(path, most))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply, expected plain JSON") from None


def check_unpacked(path: Path, needed: int) -> None:
    """Refuse what would not fit into memory unpacked, or unpacks to so much more that it is no data.

    Args:
        path: of the packed file.
        needed: bytes of what is read of it.
    """
    if needed > (there := physical_memory()) / 2:
        raise ValueError(
            f"{path} unpacks to {needed / 1e9:.1f} GB, with {there / 1e9:.1f} GB of memory; save it as .npy, which is "
            "read where it lies, or in parts"
        )
    check_ratio(path, needed)


def check_ratio(path: Path, needed: int) -> None:
    """Refuse what unpacks to so much more than its file that it is no data; it may be read in parts."""
    packed = path.stat().st_size
    if needed > SMALL and needed > RATIO * packed:
        raise ValueError(
            f"{path} of {packed:,} bytes unpacks to {needed:,}, more than {RATIO} times as many: expected data; if it "
            "is right, save it without compression"
        )


def check_archive(path: Path) -> None:
    """`check_unpacked` of all that an archive holds, as it says itself; what unpacks to more is an error later."""
    with zipfile.ZipFile(regular(path)) as archive:
        check_unpacked(path, sum(info.file_size for info in archive.infolist()))


def physical_memory() -> int:
    """Bytes of this machine; more than any where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


class _Arrays(Mapping[str, NDArray[Any]]):
    """The members of an archive that are arrays; numpy gives the bytes of others."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def __getitem__(self, name: str) -> NDArray[Any]:
        found = self._content[name]
        if not isinstance(found, np.ndarray):
            raise KeyError(f"{name} is no array")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._content.files)

    def __len__(self) -> int:
        return len(self._content.files)

    def __contains__(self, name: object) -> bool:
        return name in self._content.files


@contextmanager
def opened_npz(path: Path) -> Iterator[Mapping[str, NDArray[Any]]]:
    """The arrays of an .npz file, each read when it is asked for; ValueError or OSError where it is broken."""
    try:
        check_archive(path)
        with np.load(path, allow_pickle=False) as content:
            yield _Arrays(content)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        KeyError,
        MemoryError,
    ) as error:
        raise ValueError(f"{path} is not a readable .npz file ({' '.join(str(error).split())[:120]})") from None
