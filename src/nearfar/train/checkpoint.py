"""Checkpoints: written whole or not at all, newest first, and never unpickled."""

import os
from pathlib import Path
from typing import Any

import torch

KEPT = 2  # of the numbered checkpoints: the newest, and the one before in case the newest cannot be read


def save(state: dict[str, Any], path: Path) -> None:
    """Write to a file beside it, force it to disk, then rename: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


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
    """Read a checkpoint; tensors and plain values alone, nothing that could run."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def load_newest(folder: Path) -> tuple[dict[str, Any], Path, list[Path]]:
    """The newest checkpoint that can be read, and those that could not.

    Raises:
        FileNotFoundError: where there is none.
    """
    broken: list[Path] = []
    for path in reversed(numbered(folder)):
        try:
            return load(path), path, broken
        except Exception:
            broken.append(path)
    detail = f" ({', '.join(p.name for p in broken)} cannot be read)" if broken else ""
    raise FileNotFoundError(f"{folder} holds no checkpoint to resume from{detail}; start the run anew without --resume")
