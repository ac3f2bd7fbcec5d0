"""Processes that nearfar starts: none imports code that lies in the current folder.

`python -m` and `python -c`, which multiprocessing uses as well, look in the current folder first: a `yaml.py` beside
somebody's photographs would run with the user's rights.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def run_module(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`python -m NAME ARGUMENTS` with a safe path; its output is captured."""
    with safe_path():
        return subprocess.run(
            [sys.executable, "-P", "-W", "ignore", "-m", name, *arguments], capture_output=True, text=True
        )


@contextmanager
def safe_path() -> Iterator[None]:
    """Processes started within this have a safe path, and so have theirs."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
