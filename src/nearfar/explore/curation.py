"""What a person made of the samples, as files beside the run: saved selections, and lists for the next run."""

import csv
import io
import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from nearfar.data.cache import write_file
from nearfar.data.cells import printable
from nearfar.explore.space import ExploredRun, Space
from nearfar.safe_read import read_json

SELECTIONS, DUPLICATES = "selections.json", "duplicates.csv"
MOST = 200  # saved selections of a run
LARGEST = 1 << 30  # bytes of all of them: each has the names of its samples
LONGEST = 80  # characters of a name
Choice = Literal["merge", "drop"]


def beside(run: ExploredRun, space: Space, name: str) -> Path:
    """A file in the run folder; of an encoder that is no run, beside its file of embeddings."""
    if run.folder is not None:
        return run.folder / name
    return space.file.path.with_name(f"{space.file.path.stem}-{name}")


def saved_selections(path: Path) -> dict[str, list[str]]:
    """Names of samples by the name of the selection; a broken file is an error, and is not overwritten."""
    if not path.exists():
        return {}
    try:
        found = read_json(path, LARGEST)["selections"]
        if not all(isinstance(rows, list) and all(isinstance(row, str) for row in rows) for rows in found.values()):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} does not hold saved selections; move it aside") from None
    return {printable(name): rows for name, rows in found.items()}


def save_selection(path: Path, name: str, samples: Sequence[str]) -> dict[str, list[str]]:
    """Save a selection, or remove it if it is empty; whole or not at all. Returns all of them."""
    name = " ".join(unicodedata.normalize("NFC", name).split())
    if not name or len(name) > LONGEST or not name.isprintable():
        raise ValueError(f"the name is {name[:LONGEST]!r}, expected 1 to {LONGEST} printable characters")
    found = saved_selections(path)
    if samples:
        found[name] = list(samples)
    else:
        found.pop(name, None)
    if len(found) > MOST:
        raise ValueError(f"there are {MOST} saved selections already; delete one first")
    write_file(path, json.dumps({"selections": found}, indent=1, ensure_ascii=False) + "\n")
    return found


def write_duplicates(path: Path, names: Sequence[str], groups: Sequence[Sequence[int]], choice: Choice) -> int:
    """The table that `data.groups_file` takes: of each group all stay, or the first alone.

    Args:
        names: of all samples.
        groups: rows of near-duplicates.
        choice: "merge": samples of a group are no negatives of each other; "drop": all but its first are left out.

    Returns:
        How many samples are in it.
    """
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(["path", "group", "drop"])
    for group, rows in enumerate(groups):
        for place, row in enumerate(sorted(rows)):
            writer.writerow([names[row], group, "yes" if choice == "drop" and place else ""])
    write_file(path, table.getvalue())
    return sum(map(len, groups))
