"""Groups of samples that are never negatives of each other, from a table of path and group."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from nearfar.data import tables
from nearfar.data.columns import group_column
from nearfar.data.dataset import ArrayDataset
from nearfar.data.rows import Wanted
from nearfar.data.stream import StreamDataset

Grouped = TypeVar("Grouped", bound=ArrayDataset | StreamDataset)


def with_groups(data: Grouped, path: str | Path) -> Grouped:
    """The same samples, those that a table puts into one group grouped together.

    Groups that the data has of its own stay: where the two touch, they become one.

    Args:
        data: samples by name.
        path: .csv, .tsv, .jsonl or .parquet with columns path and group, as `nearfar doctor` and `nearfar duplicates`
            write; a sample that is not in it is in a group of its own.
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
            f"{data.names[0]!r}); make it anew for this data"
        )
    groups = group_column(found)
    grouped = copy.copy(data)
    grouped.groups = groups if data.groups is None else merged(groups, data.groups)
    return grouped


def merged(a: Tensor, b: Tensor) -> Tensor:
    """(N,) the finest groups that keep together what either keeps together.

    >>> merged(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    offset = int(a.max()) + 1
    roots = connected(offset + int(b.max()) + 1, zip(a.tolist(), (b + offset).tolist(), strict=True))
    return group_column([roots[group] for group in a.tolist()])


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
