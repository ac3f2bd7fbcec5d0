"""Numbers that identify samples by name or text, so that a run finds its samples again after the data have changed."""

import hashlib
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from nearfar.data.dataset import Dataset

SampleIds = NDArray[np.uint64]  # 8 bytes a sample: among a million, two are equal by chance once in 30 million runs
_ROW_NUMBER = re.compile(r"((row|line) )?\d+(, partner)?")


def text_ids(texts: Iterable[str]) -> SampleIds:
    """(N,) a hash of each text.

    >>> a, b, again = text_ids(["a.png", "b.png", "a.png"])
    >>> bool(a == again), bool(a == b)
    (True, False)
    """
    digests = (hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), "<u8")


def sample_ids(data: Dataset) -> SampleIds | None:
    """(N,) a hash of each sample's texts, or else of its name; None if the names are row numbers, which shift when a
    row is added.
    """
    if columns := data.text_columns:
        return text_ids(map("\0".join, zip(*columns, strict=True)))
    return None if all(map(_ROW_NUMBER.fullmatch, data.names)) else text_ids(data.names)
