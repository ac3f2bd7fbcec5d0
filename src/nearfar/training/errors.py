"""Errors that end a training run on every rank."""

import shlex
from pathlib import Path


class NotFiniteError(RuntimeError):
    """The loss or its gradient is NaN or infinite; the weights are still those of the step before."""


class ProcessLostError(RuntimeError):
    """Another process of the run died or cannot be reached."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            "another process of the run died or cannot be reached; go on, with as many as there are, by: "
            f"nearfar train --resume {shlex.quote(str(folder))} --processes N"
        )
