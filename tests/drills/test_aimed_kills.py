"""Kills aimed by a hook at the moments in which a checkpoint or a pack is written: `make drills`."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nearfar.data import cache, store
from nearfar.data.store import Store
from nearfar.modalities.image.data.opening import open_images
from nearfar.model import checkpoint
from tests.search.pictures import folder_of

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are forked"),
]
KILLS = 100  # of each kind


def die_at(call: int) -> Callable[[], None]:
    """A hook that kills the process at its nth call."""
    calls = iter(range(call))

    def hook() -> None:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def before_and_after(owner: object, name: str, hook: Callable[[], None]) -> None:
    """Have a function call the hook before and after its work."""
    inner = getattr(owner, name)

    def hooked(*arguments: object, **options: object) -> object:
        hook()
        found = inner(*arguments, **options)
        hook()
        return found

    setattr(owner, name, hooked)


def killed(work: Callable[[], object], aim: Callable[[], None]) -> bool:
    """Run the work in a process with hooks; whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            aim()
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def state(step: int) -> dict[str, object]:
    return {"step": step, "method": {"w": torch.full((5000,), float(step))}, "config": "{}"}


def test_kills_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """Each newest checkpoint is one that was written whole, and never older than the last that was."""
    written, kills, step, place = 0, 0, 0, 0
    while kills < KILLS:
        step, place = step + 1, place + 1

        def aim(place: int = place) -> None:
            hook = die_at(place)
            before_and_after(checkpoint._Summed, "write", hook)
            for name in ("fsync", "open"):
                before_and_after(os, name, hook)
            for name in ("replace", "unlink"):
                before_and_after(Path, name, hook)

        if killed(lambda step=step: checkpoint.save_step(state(step), tmp_path, step), aim):
            kills += 1
        else:
            written, place = step, 0  # it came to its end: begin again at its first moment
        if checkpoint.numbered(tmp_path):
            found, _, broken = checkpoint.load_newest(tmp_path, ("config", "method"))
            assert not broken and written <= found["step"] <= step
            assert bool((found["method"]["w"] == found["step"]).all())
            written = found["step"]
        else:
            assert written == 0
    assert len(checkpoint.numbered(tmp_path)) <= checkpoint.KEPT + 1


def test_kills_while_a_pack_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed again and again after kills, the samples are those of a pack that never was."""
    monkeypatch.setattr(store, "CHECKED_BYTES", 1)
    monkeypatch.setattr("nearfar.data.pack.JOURNAL_SECONDS", 0.0)
    photos = folder_of(tmp_path / "photos", 40)
    whole = open_images(photos, stored_size=16, cache=tmp_path / "whole", progress=False).fetch(torch.arange(40))

    def pack() -> torch.Tensor:
        data = open_images(photos, stored_size=16, cache=tmp_path / "cache", progress=False, workers=1)
        return data.fetch(torch.arange(40))

    kills, place, rounds = 0, 0, 0
    while kills < KILLS:
        place += 1

        def aim(place: int = place) -> None:
            hook = die_at(place)
            before_and_after(Store, "save", hook)
            before_and_after(Store, "note", hook)
            before_and_after(cache.Path, "replace", hook)
            before_and_after(os, "fsync", hook)

        if killed(pack, aim):
            kills += 1
            continue
        assert torch.equal(pack(), whole)
        rounds, place = rounds + 1, 0
        for file in sorted((tmp_path / "cache").rglob("rows.npy")):
            file.unlink()  # begin again, beside the values that are there
    assert torch.equal(pack(), whole) and rounds > 0
