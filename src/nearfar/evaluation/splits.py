"""A run's split, written beside it, so that a later evaluation measures on the same samples and on no others."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.data.cache import replacing, write_file
from nearfar.data.fingerprint import fingerprint
from nearfar.data.sample_ids import SampleIds, sample_ids
from nearfar.modalities.base import Modality, Splits
from nearfar.safe_read import opened_npz, read_json

SPLITS = "splits.json"  # in the run folder
SAMPLES = "splits.npz"  # beside it: the samples of each part, 8 bytes each


def named(data: str | Path, test: str | Path | None) -> str:
    """The name of data in result rows, with the test data if they are others.

    >>> named("photos", None), named("photos", "others")
    ('photos', 'photos, tested on others')
    """
    return str(data) if test is None else f"{data}, tested on {test}"


def describe_splits(modality: Modality, splits: Splits) -> dict[str, Any]:
    """How the split of a run was made, and a count and a digest of each part."""
    read = modality.config.data
    return {
        "data": modality.config.data.path,
        "test_data": read.test,
        "held_out": read.held_out,
        "validation_fraction": read.validation,
        "seed": modality.config.seed,
        "test_name": splits.test_name,
        "parts": {
            name: None if part is None else {"samples": len(part), "digest": fingerprint(part)}
            for name, part in splits.parts.items()
        },
    }


def write_splits(folder: Path, modality: Modality, splits: Splits) -> None:
    """Write `splits.json` into a run folder and, if names or texts identify the samples, `splits.npz`."""
    write_file(folder / SPLITS, json.dumps(describe_splits(modality, splits), indent=1, ensure_ascii=False) + "\n")
    ids = {name: sample_ids(part) for name, part in splits.parts.items() if part is not None}
    if any(found is None for found in ids.values()):
        (folder / SAMPLES).unlink(missing_ok=True)
        return
    with replacing(folder / SAMPLES) as fresh:
        np.savez(fresh, **ids)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SplitRecord:
    """What is recorded of the split of a run.

    Attributes:
        parts: "train", "validation" and "test", each with "samples" and "digest", or None if the run had no such part;
            without those that are not recorded.
        ids: the samples of each part, or None if nothing identifies them.
        notes: on what could not be read.
    """

    parts: Mapping[str, Any]
    ids: Mapping[str, SampleIds] | None = None
    notes: tuple[str, ...] = ()

    def changes(self, splits: Splits, *, test: bool = True) -> dict[str, tuple[int, int]]:
        """Parts that are no longer the samples of the run, each with how many it had and has.

        Args:
            test: whether to compare the test parts.
        """
        found = {}
        for name, part in splits.parts.items():
            if name not in self.parts or (name == "test" and not test):
                continue
            then = _count_and_digest(self.parts[name])
            now = (0, "") if part is None else (len(part), fingerprint(part))
            if now != then:
                found[name] = then[0], now[0]
        return found


def _count_and_digest(part: Mapping[str, Any] | None) -> tuple[int, str]:
    return (0, "") if part is None else (part["samples"], part["digest"])


def read_record(folder: Path | None, card: Mapping[str, Any]) -> SplitRecord:
    """The split of the run in a folder; without its files what the model's card says of the training part."""
    trained_on: Any = card.get("data")
    known = isinstance(trained_on, dict) and "fingerprint" in trained_on and "samples" in trained_on
    parts = {"train": {"samples": trained_on["samples"], "digest": trained_on["fingerprint"]}} if known else {}
    if folder is None:
        return SplitRecord(parts)
    try:
        stated = read_json(folder / SPLITS)["parts"]
        for part in stated.values():
            _count_and_digest(part)
    except FileNotFoundError:
        return SplitRecord(parts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return SplitRecord(parts, notes=(f"{folder / SPLITS} cannot be read: the split is drawn again",))
    try:
        with opened_npz(folder / SAMPLES) as arrays:
            ids = {name: arrays[name].astype(np.uint64) for name, part in stated.items() if part is not None}
    except FileNotFoundError:
        return SplitRecord(stated)
    except Exception:  # numpy and zipfile raise many kinds on broken files
        return SplitRecord(stated, notes=(f"{folder / SAMPLES} cannot be read: the split is drawn again",))
    return SplitRecord(stated, ids)
