"""The folder of a run that came to nothing."""

import shutil
from contextlib import suppress
from pathlib import Path

# What a run writes before its first step.
_BEGUN = {"lock", "config.yaml", "environment.json", "splits.json", "views.png", "views.txt", "tokenizer.json"}
_BEGUN |= {"verdicts.json", "skipped.txt", "clipped.txt"}


def discard(folder: Path) -> None:
    """Remove it, unless something else is in it."""
    if {entry.name for entry in folder.iterdir()} <= _BEGUN:
        with suppress(OSError):  # an open file, if the system does not remove such
            shutil.rmtree(folder)
