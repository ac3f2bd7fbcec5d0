"""Notes on what an encoder was trained on, beside the numbers of its evaluation."""

from pathlib import Path

from nearfar.config import TrainConfig
from nearfar.data.sources import folder_splits
from nearfar.methods import known_method


def training_notes(
    config: TrainConfig,
    data: str | None,
    test: str | None,
    split: str,
    *,
    held_out: str | None = None,
    noun: str = "samples",
) -> list[str]:
    """Was the encoder trained on the samples, or with the labels, that it is tested on?

    Names and places are compared, so copies elsewhere are not found.

    Args:
        config: of the run that trained it.
        data, test: what it is evaluated on; data None: the run's own test part, which it was not trained on.
        split: name of the test part: "held-out", "all", or of a part that the data have themselves.
        held_out: rows that the evaluation holds out, as `data.held_out` names them.
        noun: plural of the samples.
    """
    method = known_method(config.method)
    if data is not None and (share := _share(config, data, test, split, held_out)) is not None:
        labels = "with" if method.needs_labels else "without"
        captions = " and with their captions" if method.uses_captions else ""
        return [f"the encoder was trained on {share}these {noun}, {labels} their labels{captions}"]
    if method.needs_labels:
        return [
            f"{config.method} learned from the labels of {config.data.path}: compare it with other supervised methods"
        ]
    return []


def _share(config: TrainConfig, data: str, test: str | None, split: str, held_out: str | None) -> str | None:
    """How much of the test part it was trained on, as the words before "these"; None if nothing is known of it."""
    read, own = config.data, folder_splits(config.data.path)
    learned, place = (Path(each).expanduser().resolve() for each in (config.data.path, test or data))
    same = config.data.path == (test or data) or (learned == place and place.exists())
    if same and read.held_out != held_out:
        return "some of "  # all rows but those held out in training
    if own is not None and read.groups_file is None and read.held_out is None:
        learned = learned / own[0]
    if (place / split).is_dir():
        place = place / split
    elif test is None and split not in ("held-out", "all"):
        return None  # a part that the data have themselves
    if not (learned.exists() and place.exists()):
        return "" if same else None
    if place.is_relative_to(learned):
        return ""
    return "some of " if learned.is_relative_to(place) else None
