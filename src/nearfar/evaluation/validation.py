"""Can it be measured at all? Asked of encoder and data before any sample is embedded."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from nearfar.data.tables import READERS, path_and_rows
from nearfar.evaluation.protocols import PROTOCOLS


def check_suitable(
    protocols: Sequence[str], encoders: Iterable[object], train: object, test: object, data: str
) -> None:
    """Refuse what would measure nothing. Where one of several protocols can be measured, the others become notes.

    Args:
        encoders: the one in question, and those it is compared with.
        train, test: the parts of the data, as the protocols look at them.
        data: how they are called.
    """
    encoders = list(encoders)
    faults = [_fault(protocol, encoders, train, test, data) for protocol in protocols]
    if faults and all(faults):
        raise ValueError("; ".join(dict.fromkeys(filter(None, faults))))


def _fault(protocol: str, encoders: Sequence[object], train: object, test: object, data: str) -> str | None:
    measure = PROTOCOLS[protocol]
    if measure.reads and not measure.examples and not any(hasattr(encoder, "embed_texts") for encoder in encoders):
        return f"{protocol} needs an encoder that reads texts, such as a run of --method clip; this one reads none"
    if measure.frames and not any(hasattr(encoder, "frames") for encoder in encoders):
        return f"{protocol} needs an encoder that gives frames in time: a run on sounds or series"
    if protocol == "captions" and getattr(test, "captions", None) is None:
        return f"{data} has no captions; give --data with some, such as a table with the columns path and caption"
    if protocol == "similarity" and getattr(getattr(test, "source", None), "scores", None) is None:
        return f"{data} has no pairs of sentences with scores, which {protocol} compares; give --data with some"
    if measure.labelled and (_unlabelled(train) or _unlabelled(test)):
        table = Path(path_and_rows(data)[0]).suffix.lower() in READERS
        wanted = "a column of labels (--sources.label_column)" if table else "a folder for each class"
        other = "" if hasattr(test, "source") else ", or --protocol geometry"  # of views, which texts have none of
        return f"{data} has no labels; give --data with {wanted}{other}"
    return None


def _unlabelled(part: object) -> bool:
    labels = getattr(part, "labels", None)
    return labels is None or not bool((labels >= 0).any())
