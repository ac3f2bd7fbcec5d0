"""Each image decoded once, into a memory map in the cache that the next run starts from."""

import hashlib
import json
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nearfar.data.cache import VARIABLE, cache_folder, locked, replacing
from nearfar.data.dataset import ArrayDataset, Skipped
from nearfar.data.decode import VERSION, why
from nearfar.data.sources import KEY, Source

TODO, DONE, BROKEN = 0, 1, 2
ROW = np.dtype([("state", "u1"), ("sum", "<u4"), ("key", f"V{KEY}")])  # the journal's line for each image
JOURNAL_SECONDS = 3.0  # at most this much work is lost by a kill
CHUNK = 32  # images a worker takes at a time
CHECKED_BYTES = 64 << 20  # of a finished pack, read again at each start to see that it is sound


@dataclass(frozen=True)
class Packed:
    """The readable samples, the others with the reason, and where the pixels are."""

    dataset: ArrayDataset
    skipped: list[Skipped]
    folder: Path


def pack(
    source: Source,
    *,
    size: int,
    cache: Path | None = None,
    strict: bool = False,
    workers: int | None = None,
    progress: bool = True,
) -> Packed:
    """Decode what is not yet in the cache, and open it.

    The cache is keyed by each file's path, length and time of change, and by the settings. A pack that was killed
    goes on where it stopped; one of whose files some changed takes the others from its predecessor.

    Args:
        source: what to decode.
        size: side of the stored square image.
        cache: folder; NEARFAR_CACHE or the platform's where None.
        strict: an unreadable file is an error, not skipped.
        workers: threads that decode (Pillow lets go of the interpreter while it does); all cores where None.
        progress: show a bar.
    """
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1 pixel")
    keys = source.keys()
    family = _digest(f"{VERSION}\0{size}\0{source.description}".encode(errors="surrogateescape"))
    folder = cache_folder(cache) / "packs" / family / _digest(keys.tobytes())
    with locked(folder):
        store = _Store.opened(folder, keys, size)
        unreadable = dict(store.reasons)
        todo = np.flatnonzero(store.rows["state"] == TODO)
        if len(todo):
            store.take_from_others(todo)
            todo = np.flatnonzero(store.rows["state"] == TODO)
            unreadable |= _decode(source, store, todo, strict=strict, workers=workers, progress=progress)
        images = open_memmap(folder / "images.npy", mode="r")
    skipped = [*source.skipped, *(Skipped(source.names[row], unreadable[row]) for row in sorted(unreadable))]
    if strict and skipped:
        raise ValueError(f"{skipped[0].path} in {source.description} cannot be read: {skipped[0].reason}")
    kept = np.setdiff1d(np.arange(len(source)), np.array(list(unreadable), np.int64))
    if not len(kept):
        first = f"; the first, {skipped[0].path}: {skipped[0].reason}" if skipped else ""
        raise ValueError(f"none of the {len(source)} images of {source.description} can be read{first}")
    dataset = ArrayDataset(
        images,
        rows=kept,
        labels=None if source.labels is None else source.labels[kept],
        classes=source.classes,
        groups=None if source.groups is None else source.groups[kept],
        captions=None if source.captions is None else [source.captions[row] for row in kept],
        names=[source.names[row] for row in kept],
        skipped=skipped,
    )
    return Packed(dataset, skipped, folder)


def _decode(
    source: Source, store: "_Store", todo: NDArray[np.int64], *, strict: bool, workers: int | None, progress: bool
) -> dict[int, str]:
    """Fill the rows `todo`; returns those that cannot be read, with the reason."""
    failed: dict[int, str] = {}
    if source.paths is None:
        _ = source.images  # loaded here, once, and not by every thread
    chunks = [todo[i : i + CHUNK] for i in range(0, len(todo), CHUNK)]
    saved = time.monotonic()
    with warnings.catch_warnings(), ThreadPoolExecutor(workers or cores()) as pool, _bar(progress) as bar:
        warnings.simplefilter("ignore")  # of Pillow, about files it reads nonetheless
        task = bar.add_task(f"packing at {store.size} px", total=len(todo), skipped="")
        futures = [pool.submit(_decode_chunk, source, store, chunk) for chunk in chunks]
        try:
            for future in as_completed(futures):
                done, errors = future.result()
                failed |= {row: why(error) for row, error in errors.items()}
                store.note(done, {row: why(error) for row, error in errors.items() if not passing(error)})
                bar.update(task, advance=len(done) + len(errors), skipped=f"{len(failed)} skipped" if failed else "")
                if strict and failed:
                    break
                if time.monotonic() - saved > JOURNAL_SECONDS:
                    store.save()
                    saved = time.monotonic()
        finally:
            for future in futures:
                future.cancel()
            store.save()
    return failed


def _decode_chunk(
    source: Source, store: "_Store", rows: NDArray[np.int64]
) -> tuple[list[tuple[int, int]], dict[int, Exception]]:
    done: list[tuple[int, int]] = []
    errors: dict[int, Exception] = {}
    for row in rows.tolist():
        try:
            image = source.read(row, store.size)
        except Exception as error:  # Pillow raises of every kind on broken files: struct.error, SyntaxError, …
            errors[row] = error
        else:
            store.images[row] = image
            done.append((row, zlib.crc32(image.tobytes())))
    return done, errors


def passing(error: Exception) -> bool:
    """Whether the system refused (not found, no permission, no memory): the next run tries again."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)


class _Store:
    """A folder with the images, a journal of which rows are whole, and the reasons of those that never will be."""

    def __init__(self, folder: Path, size: int, images: NDArray[np.uint8], rows: NDArray[np.void]) -> None:
        self.folder, self.size, self.images, self.rows = folder, size, images, rows
        self.reasons: dict[int, str] = {}

    @classmethod
    def opened(cls, folder: Path, keys: NDArray[np.void], size: int) -> "_Store":
        """What is there and sound, else an empty one."""
        path, shape = folder / "images.npy", (len(keys), size, size, 3)
        try:
            rows = np.load(folder / "rows.npy", allow_pickle=False)
            images = open_memmap(path, mode="r+")
            if images.shape != shape or images.dtype != np.uint8 or rows.dtype != ROW or len(rows) != len(keys):
                raise ValueError("not what was written")
            store = cls(folder, size, images, rows)
            reasons = json.loads((folder / "broken.json").read_text())
            # Written before the journal: a kill between the two leaves reasons the journal does not know of.
            store.reasons = {int(i): str(reason) for i, reason in reasons.items() if rows["state"][int(i)] == BROKEN}
            store._check()
        except (OSError, ValueError, AttributeError, EOFError, IndexError):
            _check_space(folder, int(np.prod(shape)))
            path.unlink(missing_ok=True)  # another run may still have the old file mapped
            rows = np.zeros(len(keys), ROW)
            rows["key"] = keys
            store = cls(folder, size, open_memmap(path, mode="w+", dtype=np.uint8, shape=shape), rows)
        return store

    def _check(self) -> None:
        """Compare images with their sums; those that differ are to be done again."""
        done = np.flatnonzero(self.rows["state"] == DONE)
        budget = max(CHECKED_BYTES // (3 * self.size**2), 1)
        whole = len(done) == np.count_nonzero(self.rows["state"] != BROKEN)
        some = done[np.linspace(0, len(done) - 1, budget, dtype=int)] if whole and len(done) > budget else done
        if not all(map(self._sound, some.tolist())):
            bad = [row for row in done.tolist() if not self._sound(row)]
            self.rows["state"][bad] = TODO

    def _sound(self, row: int) -> bool:
        return bool(zlib.crc32(self.images[row].tobytes()) == self.rows["sum"][row])

    def note(self, done: Sequence[tuple[int, int]], broken: dict[int, str]) -> None:
        for row, checksum in done:
            self.rows["sum"][row] = checksum
            self.rows["state"][row] = DONE
        self.rows["state"][list(broken)] = BROKEN
        self.reasons |= broken

    def save(self) -> None:
        """Images before the journal that vouches for them."""
        assert isinstance(self.images, np.memmap)
        self.images.flush()
        with replacing(self.folder / "broken.json") as fresh:
            fresh.write_text(json.dumps(self.reasons))
        with replacing(self.folder / "rows.npy") as fresh:
            np.save(fresh, self.rows)

    def take_from_others(self, todo: NDArray[np.int64]) -> None:
        """Copy from earlier packs of the same source what has not changed since."""
        wanted = {bytes(self.rows["key"][row]): int(row) for row in todo}
        for other in _siblings(self.folder):
            try:
                rows = np.load(other / "rows.npy", allow_pickle=False)
                images = open_memmap(other / "images.npy", mode="r")
                if rows.dtype != ROW or images.shape != (len(rows), self.size, self.size, 3):
                    continue
            except (OSError, ValueError):
                continue
            for theirs in np.flatnonzero(rows["state"] == DONE):
                mine = wanted.get(bytes(rows["key"][theirs]))
                if mine is not None and self.rows["state"][mine] == TODO:
                    self.images[mine] = images[theirs]
                    self.rows["sum"][mine] = rows["sum"][theirs]
                    self.rows["state"][mine] = DONE if self._sound(mine) else TODO


def _siblings(folder: Path) -> Iterator[Path]:
    """Latest first."""
    others = [(path.stat().st_mtime, path.parent) for path in folder.parent.glob("*/rows.npy")]
    yield from (other for _, other in sorted(others, reverse=True) if other != folder)


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"the pack needs {needed / 1e9:.1f} GB in {folder}, {free / 1e9:.1f} GB are free; "
            f"make room, lower the size, stream the data or set {VARIABLE} to another folder"
        )


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _bar(shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[skipped]}"), console=Console(stderr=True), disable=not shown)


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
