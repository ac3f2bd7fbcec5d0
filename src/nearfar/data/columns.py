"""Labels and groups, from whatever text or numbers a source states them in, as tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nearfar.data.cells import missing
from nearfar.messages import nearest as nearest

LARGEST_LABEL = 65_535


def label_column(values: Sequence[object], classes: Sequence[str] | None = None) -> tuple[Tensor, list[str]]:
    """(N,) int64 labels and their names; -1 where a value is None or empty.

    Whole numbers stay what they are, so that a train and a test table agree; texts are numbered in sorted order, or
    by their place in `classes`.

    >>> label_column(["dog", "cat", ""])
    (tensor([ 1,  0, -1]), ['cat', 'dog'])
    """
    whole = [_whole(value) for value in values]
    numbers = [number for number, value in zip(whole, values, strict=True) if not missing(value)]
    if classes is None and all(n is not None and -1 <= n <= LARGEST_LABEL for n in numbers):
        labels = [-1 if number is None else number for number in whole]
        return torch.tensor(labels, dtype=torch.int64), [str(i) for i in range(max(labels, default=-1) + 1)]
    texts = [None if missing(value) else str(value) for value in values]
    names = sorted({text for text in texts if text is not None}) if classes is None else list(classes)
    number_of = {name: i for i, name in enumerate(names)}
    for text in texts:
        if text is not None and text not in number_of:
            close = nearest(text, names)
            raise ValueError(f"the label {text[:60]!r} is not among the {len(names)} known classes{close}")
    labels = [-1 if text is None else number_of[text] for text in texts]
    return torch.tensor(labels, dtype=torch.int64), names


def group_column(values: Sequence[object]) -> Tensor:
    """(N,) int64, equal where the values are; a value that is None or empty makes a group of its own.

    >>> group_column(["a", "b", "a", None])
    tensor([0, 1, 0, 2])
    """
    number_of: dict[str, int] = {}
    keys = [("", i) if missing(value) else (str(value), -1) for i, value in enumerate(values)]
    return torch.tensor([number_of.setdefault(repr(key), len(number_of)) for key in keys], dtype=torch.int64)


def _whole(value: object) -> int | None:
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) < 20 and value.strip().removeprefix("-").isdecimal():
        return int(value) if str(int(value)) == value.strip() else None  # "007" is a name
    return None
