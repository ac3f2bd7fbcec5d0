"""Do the data that were given suit the method and the settings? Asked before they are read, answered with the flag."""

from itertools import islice
from pathlib import Path

from nearfar.config import TrainConfig
from nearfar.data.sources import folder_splits, is_folder, walk
from nearfar.data.tables import READERS, path_and_rows
from nearfar.modalities import MODALITIES, modality_class
from nearfar.modalities.base import Modality
from nearfar.modalities.image.data.shards import is_shards

_LOOKED_AT = 200  # files of a folder
_FILES = {".txt", ".ts", ".npz", *READERS}  # of series and texts


def check_data(config: TrainConfig) -> None:
    """Refuse data of another kind than the method's, labels that are not there, and a test that is not there."""
    _check_kind(config)
    if modality_class(config.kind).walks_folders:
        _check_labels_and_test(config)


def _check_kind(config: TrainConfig) -> None:
    folder = Path(config.data.path).expanduser()
    if (
        not is_folder(folder)
        or is_shards(config.data.path)
        or any(file.suffix.lower() in _FILES for file in folder.iterdir())
    ):
        return
    modality = modality_class(config.kind)
    there = _modality_of_files(folder)
    if there is not None and not there.suffixes <= modality.suffixes:
        raise ValueError(
            f"{config.method} takes {modality.noun}, and {config.data.path} holds {there.noun}; give other data, or "
            "another --method"
        )


def _modality_of_files(folder: Path) -> type[Modality] | None:
    """The modality whose files a folder has, if it has those of one alone."""
    kinds = [kind for kind in map(modality_class, MODALITIES) if kind.suffixes]
    known = frozenset().union(*(kind.suffixes for kind in kinds))
    found = {file.suffix.lower() for file in islice(walk(folder, known), _LOOKED_AT)}
    holding = [kind for kind in kinds if found & kind.suffixes]
    return holding[0] if holding and found <= holding[0].suffixes else None


def _check_labels_and_test(config: TrainConfig) -> None:
    """Both at once: they come from one recipe, whose data are others."""
    read, faults, flags = config.data, [], []
    folder, parts = Path(config.data.path).expanduser(), folder_splits(config.data.path)
    inside = folder if parts is None else folder / parts[0]
    if read.labels and read.pattern is None and is_folder(inside) and not any(map(is_folder, inside.iterdir())):
        faults.append(f"{config.data.path} has no sub-folders to take labels from")
        flags.append("--data.labels false")
    if read.test is not None and not _is_there(read.test):
        faults.append(f"{read.test}, the data of the test, is not there")
        flags.append("--data.test null")
    if faults:
        raise ValueError(f"{', and '.join(faults)}; leave that out with {' '.join(flags)}, or give other data")


def _is_there(data: str) -> bool:
    """Whether it is a file, a folder, shards, or a name."""
    path = path_and_rows(data)[0]
    named = "/" not in data and not Path(path).suffix
    return named or Path(path).expanduser().exists() or is_shards(data)
