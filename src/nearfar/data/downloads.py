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


def check_allowed(name: str) -> None:
    if not _ALLOWED.get():
        raise ValueError(f"{name} is not on this machine, and is not downloaded to show samples; train or embed on it")
