"""Checkpoints: written whole or not at all, with a sum of their bytes, newest first, and never unpickled.

- **A checkpoint and its sum are one file.** torch compares no sums when it reads. Its files are zip archives, so the
  sum of all bytes is the archive's comment: neither can be there without the other, and any tool reads the file as
  before.
- **SIGTERM is no error.** Status 0, so that a scheduler starts the run again; Ctrl-C keeps 130, so that a script
  stops. In Python both raise `TrainingStopped`: only the command turns it into a status.
- **What a run needs to resume is written whole or not at all**; logs may end in half a line, which is forgotten.
- **A target of the fuzzers opens bytes as a user's file would be**, and may raise ValueError or OSError with a line.
  Hypothesis and atheris share the targets. Limits are stated where a header is read, before anything is asked of
  memory.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import nearfar

FORMAT = 2  # of what a checkpoint holds; raised when older ones can no longer be read
KEPT = 2  # of the numbered checkpoints: the newest, and the one before in case the newest cannot be read
# torch compares no sums when it reads: a flipped bit would be a weight. Its files are zip archives, which may end in a
# comment: there the sum of all bytes is kept, in the same file, so that neither can be there without the other.
_MARK = b"nearfar blake2b "
_DIGEST = 16
_NO_COMMENT = b"\0\0"  # the last bytes of an archive: how long its comment is


class FormatError(ValueError):
    """A checkpoint that another version of nearfar wrote: whole, but not readable here."""


class _Summed:
    """A file that knows the sum of what was written to it."""

    def __init__(self, file: FileIO) -> None:
        self.file, self.sum = file, hashlib.blake2b(digest_size=_DIGEST)
        self.fault: OSError | None = None

    def write(self, part: bytes) -> int:
        self.sum.update(part)
        left = memoryview(part)
        try:
            while len(left):  # a disk that is almost full takes a part, and refuses the next
                left = left[self.file.write(left) :]
        except OSError as error:
            self.fault = error
            raise
        return len(part)

    def flush(self) -> None:
        self.file.flush()


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The settings that differ, with both values.

    >>> changed_keys({"epochs": 3, "optimizer": {"lr": 0.1}}, {"epochs": 3, "optimizer": {"lr": 0.2}})
    ['optimizer.lr: 0.1 to 0.2']
    """
    found = []
    for key in dict.fromkeys([*before, *now]):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changed_keys(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key}: {old} to {new}")
    return found


def save(state: dict[str, Any], path: Path) -> None:
    """Write to a file beside it, force it to disk, then rename: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb", buffering=0) as file:
            summed = _Summed(file)
            try:
                torch.save({"format": FORMAT, "nearfar": nearfar.__version__, **state}, summed)  # type: ignore[arg-type]  # it needs no more of a file than to write to it
            except RuntimeError:  # which torch makes of a write that failed
                raise summed.fault or RuntimeError(f"the checkpoint {path} could not be written") from None
            comment = _MARK + summed.sum.digest()
            file.seek(-len(_NO_COMMENT), os.SEEK_END)
            summed.write(len(comment).to_bytes(2, "little") + comment)
            os.fsync(file.fileno())
        unfinished.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise OSError(_not_written(error, path)) from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """So that the new name, too, survives a loss of power."""
    with suppress(OSError):  # not every system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _not_written(error: OSError, path: Path) -> str:
    good = [file.name for file in numbered(path.parent)]
    before = f"{good[-1]} before it is whole" if good else "there is none before it"
    free = shutil.disk_usage(path.parent).free / 2**20
    return (
        f"the checkpoint {path} could not be written: {error.strerror or error} ({free:,.0f} MiB free); {before}; make "
        "room and go on with --resume"
    )


def save_step(state: dict[str, Any], folder: Path, step: int) -> Path:
    """Write the checkpoint of a step and drop those that are no longer kept."""
    path = folder / f"step-{step:09d}.pt"
    save(state, path)
    for old in numbered(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def numbered(folder: Path) -> list[Path]:
    """The checkpoints of steps, oldest first."""
    return sorted(folder.glob("step-*.pt"))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; tensors and plain values alone, nothing that could run.

    Raises:
        FormatError: where another version of nearfar wrote it.
        ValueError: where its bytes are not those that were written.
    """
    _check(path)
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not isinstance(state.get("step"), int):
        raise ValueError(f"{path} is not a checkpoint: it has no step")
    if (found := state.get("format", 0)) != FORMAT:
        raise FormatError(
            f"{path} has checkpoint format {found}, written by nearfar {state.get('nearfar', '0.1.0 or older')}, and "
            f"this is {nearfar.__version__} with format {FORMAT}; resume with that version, or start a new run"
        )
    return state


def _check(path: Path) -> None:
    """Compare a file with the sum at its end."""
    comment = len(_MARK) + _DIGEST
    left = path.stat().st_size - comment - len(_NO_COMMENT)
    found = hashlib.blake2b(digest_size=_DIGEST)
    with path.open("rb") as file:
        file.seek(max(left, 0))
        end = file.read()[len(_NO_COMMENT) :]
        if not end.startswith(_MARK):
            raise ValueError(f"{path} is cut short, or damaged at its end")
        file.seek(0)
        while left > 0 and (part := file.read(min(left, 1 << 20))):
            found.update(part)
            left -= len(part)
    found.update(_NO_COMMENT)
    if found.digest() != end[len(_MARK) :]:
        raise ValueError(f"{path} is damaged: its bytes are not those that were written")


def _check_complete(state: Mapping[str, Any], needed: Sequence[str], path: Path) -> None:
    """Refuse a checkpoint that lacks a part, or whose weights are not finite: an earlier one is good."""
    if lacking := [name for name in needed if name not in state]:
        raise ValueError(f"{path} lacks {lacking[0]!r}")
    weights = state.get("method", {})
    if not isinstance(weights, Mapping):
        raise ValueError(f"{path} holds no weights")
    tensors = {name: x for name, x in weights.items() if isinstance(x, Tensor)}
    if odd := [name for name, x in tensors.items() if x.layout != torch.strided or x.device.type != "cpu"]:
        raise ValueError(f"{path}: {odd[0]} is sparse or empty, expected plain numbers")
    if bad := [name for name, x in tensors.items() if bool(x.isnan().any())]:
        raise ValueError(f"{path}: {bad[0]} has values that are no numbers")


def load_newest(folder: Path, needed: Sequence[str] = ()) -> tuple[dict[str, Any], Path, list[Path]]:
    """The newest checkpoint that can be read, has what is needed and no NaN, and those of which that is not so.

    Raises:
        FileNotFoundError: where there is none.
    """
    broken: list[Path] = []
    for path in reversed(numbered(folder)):
        try:
            state = load(path)
            _check_complete(state, needed, path)
            return state, path, broken
        except FormatError:
            raise
        except Exception:
            broken.append(path)
    detail = f" ({', '.join(p.name for p in broken)} cannot be read)" if broken else ""
    raise FileNotFoundError(f"{folder} holds no checkpoint to resume from{detail}; start a new run without --resume")


def set_aside(broken: list[Path]) -> None:
    """Rename what cannot be read, so that it is not counted among those that are kept."""
    for path in broken:
        with suppress(OSError):  # another process of the run was first
            path.rename(path.with_name(f"{path.name}.broken"))
