"""Ctrl-C and SIGTERM: stop after the step, save, and tell the caller which signal it was."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from nearfar.python_objects import resume_hint

_REPEATED = 1.0  # seconds within which a second SIGTERM counts as the first one


class TrainingStopped(KeyboardInterrupt):
    """A run was stopped by Ctrl-C or SIGTERM before its end; what it finished is saved and can be resumed.

    It is a `KeyboardInterrupt`, so that `except Exception` in a loop over runs does not start the next one.

    Attributes:
        folder: the run folder.
        signal: SIGINT (Ctrl-C) or SIGTERM.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.signal = folder, signal.Signals(number)
        super().__init__(f"stopped by {self.signal.name}; {how_to_continue(folder)}")


def how_to_continue(folder: Path) -> str:
    """The command that continues a run; one that has no configuration yet must be started again."""
    begun = (folder / "config.yaml").exists()
    return f"continue with: {resume_hint(folder)}" if begun else "start it again"


@contextmanager
def stop_after_step(on_stop: Callable[[int], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call `on_stop` with the signal's number; a second one ends the process at once.

    Launchers send SIGTERM to a group of processes and to each of them: what comes within a second is the same one.
    """
    asked = math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if number == signal.SIGINT and asked < math.inf:
            print("\ninterrupted again: stopped at once; the newest checkpoint is kept", file=sys.stderr, flush=True)
            raise KeyboardInterrupt
        if number == signal.SIGTERM and time.monotonic() > asked + _REPEATED:
            end_at_once(number)
        if asked == math.inf:
            asked = time.monotonic()
            on_stop(number)

    with handle_signals(handle, signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def stop_outside_steps(folder: Path, on_stop: Callable[[], None]) -> Iterator[None]:
    """Before and after the training steps SIGTERM raises `TrainingStopped`; a second one ends the process at once.

    Args:
        folder: the run folder.
        on_stop: called first.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        on_stop()
        raise TrainingStopped(folder, number)

    with handle_signals(handle, signal.SIGTERM):
        yield


@contextmanager
def handle_signals(handle: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """Send signals to `handle` inside the block; in other threads than the main one Python cannot do that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_once(number: int) -> None:
    """End the process by a signal's default action."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
