"""Each sample decoded once, into a store in the cache that the next run starts from."""

import hashlib
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nearfar.data.cache import VARIABLE, cache_folder, locked
from nearfar.data.dataset import Skipped
from nearfar.data.row_sums import TODO
from nearfar.data.sources import Source
from nearfar.data.store import FULL, NoSpaceError, Store

JOURNAL_SECONDS = 3.0  # at most this much work is lost by a kill
CHUNK = 32  # samples a worker takes at a time


@dataclass(frozen=True)
class Packed:
    """A pack that is as full as it will be."""

    folder: Path
    rows: NDArray[np.void]  # the journal
    kept: NDArray[np.int64]  # numbers of the samples that could be read
    skipped: list[Skipped]


def pack_samples(
    source: Source,
    kind: type[Store],
    *,
    size: int,
    what: str,
    version: object,
    why: Callable[[Exception], str],
    cache: Path | None,
    strict: bool,
    workers: int | None,
    progress: bool,
) -> Packed:
    """Decode what is not yet in the cache.

    The cache is keyed by each file's path, length and time of change, and by the settings. A pack that was killed
    goes on where it stopped; if some files changed, the others are taken from the earlier pack.

    Args:
        kind: how the samples are stored.
        size: of the samples, as `source.read` takes it.
        what: the samples are, for messages.
        version: of the decoding: another version is another pack.
        why: an exception of `source.read` in a line.
        cache: folder; NEARFAR_CACHE or the platform's where None.
        strict: an unreadable file is an error, not skipped.
        workers: threads that decode; all cores where None.
        progress: show a bar.
    """
    keys = source.keys()
    family = _digest(f"{version}\0{size}\0{source.description}".encode(errors="surrogateescape"))
    folder = cache_folder(cache) / "packs" / family / _digest(keys.tobytes())
    with locked(folder):
        store = kind.opened(folder, keys, size)
        unreadable = dict(store.reasons)
        todo = np.flatnonzero(store.rows["state"] == TODO)
        if len(todo):
            store.take_from_others(todo)
            todo = np.flatnonzero(store.rows["state"] == TODO)
            try:
                unreadable |= _decode(source, store, todo, why=why, strict=strict, workers=workers, progress=progress)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise NoSpaceError(
                    f"the disk of {folder} is full; finished parts are kept: free some space and start again, or "
                    f"set {VARIABLE} to another folder"
                ) from None
    skipped = [*source.skipped, *(Skipped(source.names[row], unreadable[row]) for row in sorted(unreadable))]
    if strict and skipped:
        raise ValueError(f"{skipped[0].path} in {source.description} cannot be read: {skipped[0].reason}")
    kept = np.setdiff1d(np.arange(len(source)), np.array(list(unreadable), np.int64))
    if not len(kept):
        first = f"; the first, {skipped[0].path}: {skipped[0].reason}" if skipped else ""
        absent = source.paths is not None and not any(path.exists() for path in source.paths[:100])
        root = "; relative paths start at the table's folder: --data.root FOLDER names another" if absent else ""
        raise ValueError(f"none of the {len(source)} {what} of {source.description} can be read{first}{root}")
    return Packed(folder, store.rows, kept, skipped)


def _decode(
    source: Source,
    store: Store,
    todo: NDArray[np.int64],
    *,
    why: Callable[[Exception], str],
    strict: bool,
    workers: int | None,
    progress: bool,
) -> dict[int, str]:
    """Fill the rows `todo`; returns those that cannot be read, with the reason."""
    failed: dict[int, str] = {}
    source.load_all()
    chunks = [todo[i : i + CHUNK] for i in range(0, len(todo), CHUNK)]
    saved = time.monotonic()
    with warnings.catch_warnings(), ThreadPoolExecutor(workers or cores()) as pool, shown_progress(progress) as bar:
        warnings.simplefilter("ignore")  # of Pillow, about files it reads nonetheless
        task = bar.add_task(f"packing at {store.size:,} {store.unit}", total=len(todo), skipped="")
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
    source: Source, store: Store, rows: NDArray[np.int64]
) -> tuple[list[tuple[int, int]], dict[int, Exception]]:
    done: list[tuple[int, int]] = []
    errors: dict[int, Exception] = {}
    for row in rows.tolist():
        try:
            sample = source.read(row, store.size)
        except Exception as error:  # Pillow raises of every kind on broken files: struct.error, SyntaxError, …
            errors[row] = error
        else:
            done.append((row, store.put(row, sample)))
    return done, errors


def passing(error: Exception) -> bool:
    """Whether the system refused (not found, no permission, no memory): the next run tries again."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def shown_progress(shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[skipped]}"), console=Console(stderr=True), disable=not shown)


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
