"""A run's split, written beside it, so that a later evaluation can tell whether the data are still the same."""

import json
from pathlib import Path
from typing import Any

from nearfar.data.cache import write_file
from nearfar.data.fingerprint import fingerprint
from nearfar.modalities.base import Modality, Splits

SPLITS = "splits.json"  # in the run folder


def named(data: str | Path, test: str | Path | None) -> str:
    """The name of data in result rows, with the test data if they are others.

    >>> named("photos", None), named("photos", "others")
    ('photos', 'photos, tested on others')
    """
    return str(data) if test is None else f"{data}, tested on {test}"


def describe_splits(modality: Modality, splits: Splits) -> dict[str, Any]:
    """How the split of a run was made, and a count and a digest of each part."""
    read = modality.config.data
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {
        "data": modality.config.data.path,
        "test_data": read.test,
        "held_out": read.held_out,
        "validation_fraction": read.validation,
        "seed": modality.config.seed,
        "test_name": splits.test_name,
        "parts": {
            name: None if part is None else {"samples": len(part), "digest": fingerprint(part)}
            for name, part in parts.items()
        },
    }


def write_splits(folder: Path, modality: Modality, splits: Splits) -> None:
    """Write `splits.json` into a run folder."""
    write_file(folder / SPLITS, json.dumps(describe_splits(modality, splits), indent=1, ensure_ascii=False) + "\n")


def changes_since(folder: Path, modality: Modality, splits: Splits) -> list[str]:
    """Notes on parts that are no longer the samples of the run: none if all are, or if the folder has no splits."""
    try:
        before = json.loads((folder / SPLITS).read_text(encoding="utf-8"))["parts"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        return [f"{folder / SPLITS} cannot be read: whether the data have changed since the run is not known"]
    notes = []
    for name, part in describe_splits(modality, splits)["parts"].items():
        then = before.get(name)
        if part != then:
            counts = [each["samples"] if isinstance(each, dict) else 0 for each in (then, part)]
            notes.append(
                f"{modality.config.data.path} has changed since the run: its {name} part had {counts[0]:,} samples and "
                f"has {counts[1]:,}{' other ones' if counts[0] == counts[1] else ''}, so "
                "training samples may be tested on"
            )
    return notes
