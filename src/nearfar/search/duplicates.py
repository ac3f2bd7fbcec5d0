"""Near-duplicates among embeddings, with a threshold found from the data.

If rows are spread evenly around a row in m dimensions, the number of others within distance r grows as r^m. From the
distance d_k of its k-th neighbour, a row then expects k (r / d_k)^m others within r. The sum over all rows says how
many pairs within r chance explains. The threshold is the largest r at which that is at most 1 % of the pairs that are
there. Data without duplicates has no such r, and no pair is called a duplicate.

m is the intrinsic dimension of the data. It is estimated from the ratio of the distances of the k-th and the k/2-th
neighbour (Levina and Bickel 2004, https://papers.nips.cc/paper/2577), which duplicates hardly change as long as their
groups are smaller than k/2. Of fewer than 64 rows the k-th neighbor is no neighbor: there k is 8 at most, and m
counts as at most 12, since an estimate that is too high takes ordinary pairs for duplicates.
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
from nearfar.search.search import Hits, Lookup, Vectors, neighbors

NEIGHBORS = 16
MIN_ROWS = 8  # to estimate the dimension
FEW_ROWS, FEW_NEIGHBORS = 64, 8  # below so many rows, so many neighbors are looked at
MOST_DIMENSIONS = 12.0  # of few rows; embeddings of photos have 12 to 16
BY_CHANCE = 0.01  # share of the pairs that chance may explain
ROUNDING, ROUNDING_HALF = 1e-3, 2e-2  # distances of equal rows after rounding to float32 and float16
CROWDED = 3  # the distance of the k-th neighbour counts as at least the median divided by this


@dataclass(frozen=True)
class Duplicates:
    """N rows in groups.

    Attributes:
        groups: (N,) equal for rows that a chain of near-duplicate pairs connects.
        threshold: cosine from which a pair counts.
        dimension: m; None where the threshold was given or there are too few rows.
        nearest: (N,) cosine of each row with its nearest neighbour.
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
        threshold: a cosine; None: found from the data.
        half: whether the rows were stored as float16.
        find, advance: as in `neighbors`.
    """
    check_threshold(threshold)
    if len(vectors) < 2:
        return Duplicates(torch.zeros(len(vectors), dtype=torch.long), 1.0, None, torch.zeros(len(vectors)))
    hits = neighbors(vectors, k=min(NEIGHBORS, len(vectors) - 1), find=find, advance=advance)
    dimension = None
    if threshold is None:
        threshold, dimension = find_threshold(hits.similarities, rounding=ROUNDING_HALF if half else ROUNDING)
    return Duplicates(connected_groups(hits, threshold), threshold, dimension, hits.similarities[:, 0])


def check_threshold(threshold: float | None) -> None:
    if threshold is not None and not -1 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold}, expected a cosine from -1 to 1")


def connected_groups(hits: Hits, threshold: float) -> Tensor:
    """(N,) groups of rows that chains of pairs above the threshold connect, from (N, k) neighbours."""
    rows, places = ((hits.similarities >= threshold) & (hits.rows >= 0)).nonzero(as_tuple=True)
    others = hits.rows[rows, places]
    return group_column(connected(len(hits.rows), zip(rows.tolist(), others.tolist(), strict=True)))


def find_threshold(similarities: Tensor, *, rounding: float = ROUNDING) -> tuple[float, float | None]:
    """The cosine from which chance explains at most 1 % of the pairs, and the dimension of the data.

    Args:
        similarities: (N, k) cosines of each row with its neighbours, highest first.
        rounding: distance up to which rows always count as equal.
    """
    few = len(similarities) < FEW_ROWS
    near = similarities[:, :FEW_NEIGHBORS] if few else similarities
    d = (2 - 2 * near.double()).clamp_min(0).sqrt()  # (N, k)
    radius, dimension = rounding, None
    if len(d) >= MIN_ROWS and d.shape[1] >= 4:
        dimension = _dimension(d, rounding)
    if dimension is not None and few:
        dimension = min(dimension, MOST_DIMENSIONS)
    if dimension is not None:
        radius = max(rounding, _radius(d, dimension))
    return 1 - radius**2 / 2, dimension


def _dimension(d: Tensor, rounding: float) -> float | None:
    """m, from E log(d_k / d_j) = (H_{k-1} - H_{j-1}) / m with j = k/2, over rows with distinct neighbours."""
    k = d.shape[1]
    j = k // 2
    spread = d[:, j - 1] > rounding
    if int(spread.sum()) < MIN_ROWS:
        return None
    growth = float((d[spread, -1] / d[spread, j - 1]).log().mean())
    return sum(1 / i for i in range(j, k)) / growth if growth > 0 else None


def _radius(d: Tensor, m: float) -> float:
    """The largest distance at which chance explains few of the pairs; 0 where there is none."""
    k, last = d.shape[1], d[:, -1]
    last = last.clamp_min(float(last.median()) / CROWDED)
    # log Σ_i k (r / d_k,i)^m: in logarithms, since m may be in the tens
    log_share = math.log(k) + float(torch.logsumexp(-m * last.clamp_min(1e-9).log(), 0))
    pairs = d.flatten().sort().values  # each pair counts twice, here and in `chance`
    counted = torch.arange(1, len(pairs) + 1).double().log()
    chance = m * pairs.clamp_min(1e-9).log() + log_share
    few = (chance - counted <= math.log(BY_CHANCE)).nonzero()
    return float(pairs[few[-1, 0]]) if len(few) else 0.0


def write_groups(path: Path, names: Sequence[str], groups: Tensor, nearest: Sequence[float] | None = None) -> int:
    """Write a table of path and group for rows with duplicates; returns the number of groups.

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
