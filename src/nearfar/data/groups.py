"""Groups of samples that are never negatives of each other, from a table of path and group."""

import copy
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from nearfar.data import tables
from nearfar.data.columns import group_column
from nearfar.data.rows import Wanted


class _Named(Protocol):
    names: Sequence[str]
    groups: Tensor | None

    def subset(self, indices: Tensor) -> Self: ...


Grouped = TypeVar("Grouped", bound=_Named)


def with_groups(data: Grouped, path: str | Path) -> Grouped:
    """The same samples, those that a table puts into one group grouped together.

    Groups that the data has of its own stay: where the two touch, they become one.

    Args:
        data: samples by name.
        path: .csv, .tsv, .jsonl or .parquet with columns path and group, as `nearfar doctor` and `nearfar duplicates`
            write; a sample that is not in it is in a group of its own. Samples with yes in a column drop are left out.
    """
    file = Path(path).expanduser()
    if not file.is_file() or file.suffix.lower() not in tables.READERS:
        raise FileNotFoundError(f"there is no table {str(path)!r}, expected one of {', '.join(tables.READERS)}")
    table = tables.read(file, Wanted(labels=False, captions=False))
    if table.groups is None:
        raise ValueError(f"{file} has no column 'group', expected path and group, as `nearfar doctor` writes them")
    stated = dict(zip(table.names, table.groups.tolist(), strict=True))
    found = [stated.get(name) for name in data.names]
    if all(group is None for group in found):
        raise ValueError(
            f"none of the {len(stated)} paths of {file} is in the data (the first is {table.names[0]!r}, the data's "
            f"{data.names[0]!r}); write it again for this data"
        )
    groups = group_column(found)
    grouped = copy.copy(data)
    grouped.groups = groups if data.groups is None else merged(groups, data.groups)
    if dropped := _dropped(file):
        kept = torch.tensor([name not in dropped for name in data.names])
        if not kept.any():
            raise ValueError(f"{file} drops all {len(kept)} samples of the data, expected some without 'yes' in 'drop'")
        grouped = grouped.subset(kept.nonzero()[:, 0])
    return grouped


def _dropped(file: Path) -> set[str]:
    """The samples that a table of groups leaves out."""
    columns = tables.read_columns(file)
    if "drop" not in columns or "path" not in columns:
        return set()
    pairs = zip(columns["path"], columns["drop"], strict=True)
    return {str(path) for path, drop in pairs if str(drop).strip().lower() in ("yes", "true", "1")}


def merged(a: Tensor, b: Tensor) -> Tensor:
    """(N,) the finest groups that keep together what either keeps together.

    >>> merged(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    offset = int(a.max()) + 1
    roots = connected(offset + int(b.max()) + 1, zip(a.tolist(), (b + offset).tolist(), strict=True))
    return group_column([roots[group] for group in a.tolist()])


def caption_ids(texts: Sequence[str]) -> Tensor:
    """(N,) equal where two captions say the same, apart from case, white space and the way accents are encoded.

    >>> caption_ids(["A red car", "a  red car", "a dog"]).tolist()
    [0, 0, 1]
    """
    number_of: dict[str, int] = {}
    plain = (" ".join(unicodedata.normalize("NFC", text).casefold().split()) for text in texts)
    return torch.tensor([number_of.setdefault(text, len(number_of)) for text in plain], dtype=torch.int64)


def merged_ids(groups: Tensor, captions: Tensor) -> Tensor:
    """(N,) the ids of image-text pairs: no pair is a negative of one with its image, nor of one with its caption.

    Being equal must hold along chains: where A and B share an image and B and C a caption, all three get one id, and
    A and C are lost as negatives. Captions that fit everything ("a photo") are better left out of the data.

    Args:
        groups: (N,) any integers, equal for pairs of the same image (or duplicates of it).
        captions: (N,) any integers, equal for pairs of the same text; `caption_ids` makes them.

    >>> merged_ids(torch.tensor([7, 7, 8, 9]), torch.tensor([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    if groups.ndim != 1 or groups.shape != captions.shape:
        raise ValueError(
            f"groups has shape {tuple(groups.shape)} and captions {tuple(captions.shape)}, expected (N,) for both"
        )
    if not len(groups):
        return groups
    return merged(groups.unique(return_inverse=True)[1], captions.unique(return_inverse=True)[1])


def connected(n: int, pairs: Iterable[tuple[int, int]]) -> Sequence[int]:
    """For each of n items the least item that a chain of pairs joins it with.

    >>> connected(5, [(3, 1), (4, 3)])
    [0, 1, 2, 1, 1]
    """
    parent = list(range(n))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    return [root(item) for item in range(n)]


def held_out(groups: Tensor | None, order: Tensor, count: int) -> Tensor:
    """(N,) booleans: about `count` samples, the first of `order`, and with each the whole of its group.

    Without groups exactly `count`.
    """
    chosen = torch.zeros(len(order), dtype=torch.bool)
    if groups is None:
        chosen[order[:count]] = True
        return chosen
    sizes = groups.unique(return_counts=True, return_inverse=True)
    group_of, members = sizes[1], sizes[2]  # (N,), (G,)
    taken = torch.zeros(len(members), dtype=torch.bool)
    left = count
    for group in group_of[order].tolist():
        size = int(members[group])
        if left <= 0:
            break
        if not taken[group] and size <= left:
            taken[group] = True
            left -= size
    return taken[group_of]
