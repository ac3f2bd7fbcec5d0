"""What a run has been shown of the data that it is evaluated on: told beside the numbers."""

from pathlib import Path

from nearfar.config import TrainConfig
from nearfar.methods import known_method


def seen_before(config: TrainConfig, data: str, test: str | None, split: str, *, what: str = "images") -> list[str]:
    """Notes on the test part; names and places alone are compared, so that copies elsewhere are not found.

    Args:
        config: of the run.
        data, test: that it is evaluated on, as `open_parts` takes them.
        split: of them, as the rows name it: "held-out", "all", or a part that they have themselves.
        what: the samples are called.
    """
    notes, method = [], known_method(config.method)
    if (share := _share(config, data, test, split)) is not None:
        how = "with" if method.needs_labels else "without"
        told = " and with their captions" if method.uses_captions else ""
        notes.append(f"the encoder was trained on {share}these {what}, {how} their labels{told}")
    elif method.needs_labels:
        notes.append(supervised(config))
    return notes


def supervised(config: TrainConfig) -> str:
    """What to say of a method that others without labels are compared with."""
    return f"{config.method} learned from the labels of {config.data}: compare it with what did, too"


def _share(config: TrainConfig, data: str, test: str | None, split: str) -> str | None:
    """How much of the test part the encoder has seen, as what stands before "these"; None where that is not known."""
    if config.sources.held_out is not None:
        return None  # rows were kept apart by name
    learned, place = (Path(each).expanduser().resolve() for each in (config.data, test or data))
    if (place / split).is_dir():
        place = place / split
    elif test is None and split not in ("held-out", "all"):
        return None  # a part that the data have themselves
    if not (learned.exists() and place.exists()):
        return "" if config.data == (test or data) else None
    if place.is_relative_to(learned):
        return ""
    return "some of " if learned.is_relative_to(place) else None
