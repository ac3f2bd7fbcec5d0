"""Where finished work is kept between runs, and how it is written so that a kill leaves nothing half made."""

import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

Kind = TypeVar("Kind", bound=np.generic)
VARIABLE = "NEARFAR_CACHE"
_MASK = os.umask(0)  # it can only be read by setting it
os.umask(_MASK)


def cache_folder(cache: Path | None = None) -> Path:
    """The folder given, else the one NEARFAR_CACHE names, else the platform's; made where it is not there."""
    folder = cache or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else platform_cache() / "nearfar")
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"the cache folder {folder} cannot be made ({error.strerror}); set {VARIABLE} to another"
        ) from None
    return folder


def platform_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place in one step once it is whole and on the disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    fresh = Path(name)
    try:
        yield fresh
        fresh.chmod(0o666 & ~_MASK)  # as any other file of this user, where a temporary one is private
        with fresh.open("rb+") as file:
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def write_file(path: Path | str, content: str | bytes) -> Path:
    """Write a whole file in one step; makes its folder. A crash leaves the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def locked(folder: Path, busy: str | None = None) -> Iterator[None]:
    """One process at a time; the lock goes with the process, however it ends.

    Args:
        folder: what only one may use.
        busy: said in an error where another process has it; None waits for that one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+b") as file:
        if not _take(file, wait=busy is None):
            raise FileExistsError(busy)
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process has the folder now."""
    try:
        with (folder / "lock").open("r+b") as file:
            return not _take(file, wait=False)
    except OSError:
        return False


def _take(file: BinaryIO, *, wait: bool) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (BlockingIOError, PermissionError):
        return False
    return True


def cached_array(path: Path, make: Callable[[], NDArray[Kind]]) -> NDArray[Kind]:
    """The array stored at `path`.npy, mapped, where it is sound; else made, stored and returned."""
    stored, proof = path.with_name(f"{path.name}.npy"), path.with_name(f"{path.name}.crc32")
    try:
        array: NDArray[Kind] = np.load(stored, mmap_mode="r", allow_pickle=False)
        if zlib.crc32(array.tobytes()) == int(proof.read_text()):
            return array
    except (OSError, ValueError, EOFError):
        pass
    array = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(stored) as fresh:
        np.save(fresh, array)
    with replacing(proof) as fresh:
        fresh.write_text(str(zlib.crc32(array.tobytes())))
    return array
