"""Near-duplicates among embeddings, with a threshold found from the data itself.

How near is too near to be chance? Where rows are spread evenly around a row in m dimensions, the number of others
within distance r of it grows as r^m. So from the distance d_k of its k-th neighbour, a row expects k (r / d_k)^m others
within r. Summed over all rows this says how many pairs within r chance would make; counting says how many there are.
The threshold is the largest r at which chance explains at most 1 % of the pairs that are there. Data without
duplicates has no such r, and then nothing is called one.

The dimension m is that of the data, not of the vectors: it comes from how much farther the k-th neighbour is than the
k/2-th, over all rows (Levina and Bickel 2004, https://papers.nips.cc/paper/2577), which duplicates hardly touch as long
as their groups are smaller than k/2.
"""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.data.columns import group_column
from nearfar.data.groups import connected
from nearfar.search.search import Hits, Lookup, Vectors, neighbours

NEIGHBOURS = 16
FEWEST = 32  # rows from which their law can be seen
BY_CHANCE = 0.01  # the part of the pairs found that may be chance
ROUNDING, ROUNDING_HALF = 1e-3, 2e-2  # distances of equal rows after rounding to 32 and 16 bits
CROWDED = 3  # a row is not believed to be in a place more than this many times as dense as the median


@dataclass(frozen=True)
class Duplicates:
    """N rows in groups.

    Attributes:
        groups: (N,) equal where rows are near-duplicates, by a chain of pairs; most rows are alone.
        threshold: cosine from which a pair counts.
        dimension: of the data, m; None where the threshold was given, or there are too few rows to tell.
        nearest: (N,) cosine of each row with its nearest other.
    """

    groups: Tensor
    threshold: float
    dimension: float | None
    nearest: Tensor

    def members(self) -> list[list[int]]:
        """The rows of each group of two or more, largest first."""
        found: dict[int, list[int]] = {}
        for row, group in enumerate(self.groups.tolist()):
            found.setdefault(group, []).append(row)
        return sorted((rows for rows in found.values() if len(rows) > 1), key=lambda rows: (-len(rows), rows[0]))


def find_duplicates(
    vectors: Vectors,
    *,
    threshold: float | None = None,
    half: bool = False,
    find: Lookup | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Duplicates:
    """Groups of rows that are nearer to each other than chance explains.

    Args:
        vectors: N rows.
        threshold: a cosine, instead of the one that is found.
        half: whether the rows were rounded to 16 bits.
        find, advance: as in `neighbours`.
    """
    check_threshold(threshold)
    if len(vectors) < 2:
        return Duplicates(torch.zeros(len(vectors), dtype=torch.long), 1.0, None, torch.zeros(len(vectors)))
    hits = neighbours(vectors, k=min(NEIGHBOURS, len(vectors) - 1), find=find, advance=advance)
    dimension = None
    if threshold is None:
        threshold, dimension = find_threshold(hits.similarities, rounding=ROUNDING_HALF if half else ROUNDING)
    return Duplicates(joined(hits, threshold), threshold, dimension, hits.similarities[:, 0])


def check_threshold(threshold: float | None) -> None:
    if threshold is not None and not -1 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold}, expected a cosine from -1 to 1")


def joined(hits: Hits, threshold: float) -> Tensor:
    """(N,) groups of rows that a chain of pairs from the threshold on joins; (N, k) neighbours of each row."""
    rows, places = ((hits.similarities >= threshold) & (hits.rows >= 0)).nonzero(as_tuple=True)
    others = hits.rows[rows, places]
    return group_column(connected(len(hits.rows), zip(rows.tolist(), others.tolist(), strict=True)))


def find_threshold(similarities: Tensor, *, rounding: float = ROUNDING) -> tuple[float, float | None]:
    """The cosine from which chance explains at most 1 % of the pairs, and the dimension of the data.

    Args:
        similarities: (N, k) cosines of each row with its neighbours, in falling order.
        rounding: distance up to which rows count as equal whatever chance says.
    """
    d = (2 - 2 * similarities.double()).clamp_min(0).sqrt()  # (N, k)
    radius, dimension = rounding, None
    if len(d) >= FEWEST and d.shape[1] >= 4:
        dimension = _dimension(d, rounding)
    if dimension is not None:
        radius = max(rounding, _radius(d, dimension))
    return 1 - radius**2 / 2, dimension


def _dimension(d: Tensor, rounding: float) -> float | None:
    """m, from E log(d_k / d_j) = (H_{k-1} - H_{j-1}) / m with j = k/2, over rows whose neighbourhood is not a point."""
    k = d.shape[1]
    j = k // 2
    spread = d[:, j - 1] > rounding
    if int(spread.sum()) < FEWEST:
        return None
    growth = float((d[spread, -1] / d[spread, j - 1]).log().mean())
    return sum(1 / i for i in range(j, k)) / growth if growth > 0 else None


def _radius(d: Tensor, m: float) -> float:
    """The largest distance of a pair at which the pairs by chance are few among those that are there; 0 for none."""
    k, last = d.shape[1], d[:, -1]
    last = last.clamp_min(float(last.median()) / CROWDED)
    # log Σ_i k (r / d_k,i)^m, in logarithms: m may be in the tens
    log_share = math.log(k) + float(torch.logsumexp(-m * last.clamp_min(1e-9).log(), 0))
    pairs = d.flatten().sort().values  # each pair from both of its ends, on both sides of the comparison
    counted = torch.arange(1, len(pairs) + 1).double().log()
    chance = m * pairs.clamp_min(1e-9).log() + log_share
    few = (chance - counted <= math.log(BY_CHANCE)).nonzero()
    return float(pairs[few[-1, 0]]) if len(few) else 0.0


def write_groups(path: Path, names: Sequence[str], groups: Tensor, nearest: Sequence[float] | None = None) -> int:
    """A table of path and group, of the rows that are not alone; returns the number of groups.

    `nearfar train --group` reads it.
    """
    numbers, counts = groups.unique(return_counts=True)
    shared = numbers[counts > 1].tolist()
    place = {group: number for number, group in enumerate(shared)}
    lines = [(place[g], row) for row, g in enumerate(groups.tolist()) if g in place]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh, fresh.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "group", *(["nearest"] if nearest is not None else [])])
        for number, row in sorted(lines):
            writer.writerow([names[row], number, *([f"{nearest[row]:.5f}"] if nearest is not None else [])])
    return len(shared)
