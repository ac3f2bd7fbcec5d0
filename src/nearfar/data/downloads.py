"""Data that a file names and not the user: nothing is fetched, and no whole machine is searched for them."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

MANY, SHARE = 500_000, 0.05  # entries of a folder that are looked at, and the share of samples among them, at least
_REFUSED = "which is not searched because a file names it; give --data"
_ALLOWED = ContextVar("allowed", default=True)


@contextmanager
def no_downloads() -> Iterator[None]:
    """Within this, `check_allowed` raises, in this thread."""
    before = _ALLOWED.set(False)
    try:
        yield
    finally:
        _ALLOWED.reset(before)


@contextmanager
def named_by_run(run: Path | None, suffixes: frozenset[str], *data: str | None) -> Iterator[None]:
    """Within this, data that a run names are read, as within `no_downloads`.

    Args:
        run: its folder.
        suffixes: of the files that are looked for.
        data: what the run names.

    Raises:
        ValueError: where they are a whole disk, a folder around the home folder or around this run (no run trains on
            such a folder: `nearfar.data.sources.check_apart`), or a large folder of hardly any such files.
    """
    for each in filter(None, data):
        if (place := _folder(each)) is None:
            continue
        kept = (Path(place.anchor), _folder("~"), None if run is None else run.resolve())
        if any(one is not None and one.is_relative_to(place) for one in kept):
            raise ValueError(f"the run names {each} as its data, {_REFUSED}")
        if suffixes:
            _check_share(place, suffixes, each)
    with no_downloads():
        yield


def _folder(spec: str | Path) -> Path | None:
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: there is no home; ValueError: a zero byte
        place = Path(spec).expanduser()
        if not place.exists():  # a pattern searches the folder before its first wildcard
            place = Path(re.split(r"[^/]*[*?\[{]", str(place))[0])
        place = place.resolve()
        return place if place.is_dir() else None
    return None


def _check_share(place: Path, suffixes: frozenset[str], name: str) -> None:
    """Refuse a folder whose first entries are mostly something else, before all of it is searched."""
    entries = good = 0
    disk, seen = Path(place.anchor).stat(), set[tuple[int, int]]()
    for folder, folders, files in os.walk(place, followlinks=True):  # as samples are searched
        with suppress(OSError):
            state = Path(folder).stat()
            if os.path.samestat(state, disk):
                raise ValueError(f"the run names {name} as its data, with a link to a whole disk, {_REFUSED}")
            if (state.st_dev, state.st_ino) in seen:
                folders.clear()
                continue
            seen.add((state.st_dev, state.st_ino))
        entries += len(folders) + len(files)
        good += sum(Path(file).suffix.lower() in suffixes for file in files)
        if entries >= MANY:
            if good < SHARE * entries:
                raise ValueError(f"the run names {name} as its data, where {good:,} of {entries:,} can be, {_REFUSED}")
            return


def downloads_allowed() -> bool:
    return _ALLOWED.get()


def check_allowed(name: str) -> None:
    if not downloads_allowed():
        raise ValueError(
            f"{name} is not on this machine, and is not downloaded because a file names it; fetch it first, by using "
            "its name in a command"
        )
