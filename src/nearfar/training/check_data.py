"""Do the data that were given suit the method and the settings? Asked before they are read, answered with the flag."""

from itertools import islice
from pathlib import Path

from nearfar.config import TrainConfig
from nearfar.data.sources import is_folder, own_parts, walk
from nearfar.data.tables import READERS, path_and_rows
from nearfar.modalities.image.data.decode import SUFFIXES as PICTURES
from nearfar.modalities.image.data.opening import has_splits
from nearfar.modalities.image.data.shards import is_shards
from nearfar.modalities.sound.files import SUFFIXES as SOUNDS

_LOOKED_AT = 200  # files of a folder
_WANTED = {
    "image": "images",
    "image-text": "images with captions",
    "series": "sounds or series",
    "sound": "sounds",
    "text": "sentences",
}
_FILES = {".txt", ".ts", ".npz", *READERS}  # of series and texts


def check_given(config: TrainConfig) -> None:
    """Refuse data of another kind than the method's, labels that are not there, and a test that is not there."""
    _check_kind(config)
    if config.kind in ("image", "sound"):
        _check_labels_and_test(config)


def _check_kind(config: TrainConfig) -> None:
    folder = Path(config.data).expanduser()
    if (
        not is_folder(folder)
        or is_shards(config.data)
        or any(file.suffix.lower() in _FILES for file in folder.iterdir())
    ):
        return
    wanted, there = _WANTED[config.kind], _held_by(folder)
    if there is not None and there not in wanted:
        raise ValueError(
            f"{config.method} takes {wanted}, and {config.data} holds {there}; give other data, or another --method"
        )


def _held_by(folder: Path) -> str | None:
    """ "images" or "sounds", where a folder has nothing else of the two."""
    kinds = {file.suffix.lower() in PICTURES for file in islice(walk(folder, PICTURES | SOUNDS), _LOOKED_AT)}
    return None if len(kinds) != 1 else "images" if kinds.pop() else "sounds"


def _check_labels_and_test(config: TrainConfig) -> None:
    """Both at once: they come from one recipe, whose data are others."""
    sources, faults, flags = config.sources, [], []
    folder, parts = Path(config.data).expanduser(), own_parts(config.data)
    inside = folder if parts is None else folder / parts[0]
    if sources.labels and sources.pattern is None and is_folder(inside) and not any(map(is_folder, inside.iterdir())):
        faults.append(f"{config.data} has no sub-folders to take labels from")
        flags.append("--sources.labels false")
    if sources.test is not None and not _is_there(sources.test):
        faults.append(f"{sources.test}, the data of the test, is not there")
        flags.append("--sources.test null")
    if faults:
        raise ValueError(f"{', and '.join(faults)}; leave that out with {' '.join(flags)}, or give other data")


def _is_there(data: str) -> bool:
    """Whether it is a file, a folder, shards, or a name."""
    path = path_and_rows(data)[0]
    named = "/" not in data and not Path(path).suffix
    return named or Path(path).expanduser().exists() or is_shards(data) or has_splits(data)
