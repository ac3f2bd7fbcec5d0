"""Whether data that are not there may be fetched: only where the user named them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ALLOWED = ContextVar("allowed", default=True)


@contextmanager
def no_downloads() -> Iterator[None]:
    """Within this, `check_allowed` raises, in this thread."""
    before = _ALLOWED.set(False)
    try:
        yield
    finally:
        _ALLOWED.reset(before)


def downloads_allowed() -> bool:
    return _ALLOWED.get()


def check_allowed(name: str) -> None:
    if not downloads_allowed():
        raise ValueError(
            f"{name} is not on this machine, and is not downloaded because a file names it; fetch it first, by using "
            "its name in a command"
        )
