"""Can it be measured at all? Checked before any sample is embedded."""

from collections.abc import Sequence
from pathlib import Path

from nearfar.data.dataset import Dataset
from nearfar.data.tables import READERS, path_and_rows
from nearfar.evaluation.protocols import Protocol, find_protocol
from nearfar.evaluation.task import Embedder
from nearfar.python_objects import is_object


def check_protocols(
    protocols: Sequence[str], embedders: Sequence[Embedder], train: Dataset, test: Dataset, data: str
) -> None:
    """Refuse protocols none of which can be measured. If some can, the others become notes.

    Args:
        embedders: the encoder in question, and those it is compared with.
        train, test: the parts of the data.
        data: their name.
    """
    faults = [_missing(find_protocol(name), embedders, train, test, data) for name in protocols]
    if faults and all(faults):
        raise ValueError("; ".join(dict.fromkeys(filter(None, faults))))


def _missing(protocol: Protocol, embedders: Sequence[Embedder], train: Dataset, test: Dataset, data: str) -> str | None:
    """What a protocol needs and does not find, in a line."""
    name = protocol.name
    if protocol.reads_texts and all(embedder.embed_texts is None for embedder in embedders):
        return f"{name} needs an encoder that reads texts, such as a run of --method clip; this one reads none"
    if protocol.has_frames and all(embedder.frames is None for embedder in embedders):
        return f"{name} needs an encoder that gives frames in time: a run on sounds or series"
    if protocol.needs == "captions" and test.captions is None:
        return f"{data} has no captions; give --data with some, such as a table with the columns path and caption"
    if protocol.needs == "scored pairs" and test.scores is None:
        return f"{data} has no pairs of sentences with scores, which {name} compares; give --data with some"
    if protocol.labelled and (_unlabelled(train) or _unlabelled(test)):
        if is_object(data):
            return f"{data} has no labels; give (samples, labels), or protocols=['geometry']"
        wanted = _labelled_data(data, test)
        other = ", or --protocol geometry" if test.texts is None else ""  # sentences have no augmentation
        return f"{data} has no labels; give --data with {wanted}{other}"
    return None


def _labelled_data(data: str, test: Dataset) -> str:
    """What data with labels look like, of the same kind as these."""
    file = Path(path_and_rows(data)[0]).expanduser()
    if file.suffix.lower() in READERS:
        return "a column of labels (--data.label_column)"
    if test.texts is not None:
        return "labels: a table with the columns text and label"
    return "a folder for each class" if file.is_dir() else "labels"


def _unlabelled(part: Dataset) -> bool:
    return part.labels is None or not bool((part.labels >= 0).any())
