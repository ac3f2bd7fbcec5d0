"""What to label next: each strategy fills a pool one row at a time, most useful first.

Memory is linear in the rows: similarities are computed in tiles, and kept only for small sets.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from nearfar.evaluation.clustering import k_means
from nearfar.losses.arguments import l2_normalize
from nearfar.selection.pool import Pool

DEMAND = 10_000  # rows that facility location covers; beyond it, a seeded sample stands for all
HELD = 1 << 26  # similarities that facility location keeps, at most: 256 MB
TILE = 1024
STALE = 32  # gains that facility location brings up to date at once
CLUSTERS = 500  # at most, of `typical`; as TypiClust
CLUSTERED = 20_000  # rows that k-means looks at; the others join the nearest center
SMALL = 5  # rows: smaller clusters come last, as in TypiClust
NEAR = 20  # neighbors of which typicality is the mean

Advance = Callable[[int], None]


def k_center(pool: Pool, advance: Advance = lambda _: None) -> None:
    """Always the row that is farthest from all that is labelled or selected; at most twice the best possible radius.

    Without labelled rows it begins with a row drawn by the seed.

    Reference: Gonzalez 1985; Sener and Savarese 2018, algorithm 1, https://arxiv.org/abs/1708.00489
    """
    nearest = _highest(pool.x, pool.x[pool.labelled])  # (N,) cosine with the nearest covered row
    if not len(pool.labelled) and not pool.done:
        candidates = pool.available.nonzero()[:, 0]
        row = int(candidates[torch.randint(len(candidates), (1,), generator=pool.generator())])
        pool.take(row, "drawn as the first")
        nearest = pool.x @ pool.x[row]
        advance(1)
    while not pool.done:
        row = int(nearest.masked_fill(~pool.available, torch.inf).argmin())
        if pool.take(row, f"farthest from the others: cosine {float(nearest[row]):.3f} with the nearest"):
            nearest = torch.maximum(nearest, pool.x @ pool.x[row])
            advance(1)


def facility_location(pool: Pool, advance: Advance = lambda _: None) -> None:
    """Rows that are together as similar as possible to all: the greedy maximum of Σ_i max_j s_ij.

    s is the cosine of the rows minus their mean, at least 0: what all rows share says nothing about any.

    The greedy sum is at least 1 - 1/e of the best possible one. Gains only fall as rows are added, so those of before
    are bounds, and only the largest are computed again (lazy greedy).

    Reference: Nemhauser, Wolsey and Fisher 1978; Minoux 1978; Wei, Iyer and Bilmes 2015.
    """
    everyone = torch.randperm(len(pool), generator=pool.generator())[:DEMAND].sort().values
    x = l2_normalize(pool.x - pool.x.mean(0))
    demand = x[everyone]  # (M, D)
    best = _highest(demand, x[pool.labelled]).clamp_min(0)  # (M,) similarity with the nearest covered row

    known = x @ demand.T if len(x) * len(demand) <= HELD else None  # (N, M), where it is small

    def similarities(rows: Tensor) -> Tensor:
        return x[rows] @ demand.T if known is None else known[rows]

    def gains(rows: Tensor) -> Tensor:
        return (similarities(rows) - best).clamp_min_(0).sum(1)

    bound = torch.cat([gains(rows) for rows in torch.arange(len(pool)).split(TILE)])  # (N,)
    while not pool.done:
        fresh = torch.zeros(len(pool), dtype=torch.bool)
        while True:
            open_bound = bound.masked_fill(~pool.available, -1)
            row = int(open_bound.argmax())
            if fresh[row]:
                break
            rows = open_bound.masked_fill(fresh, -1).topk(min(STALE, len(pool))).indices
            bound[rows] = gains(rows)
            fresh[rows] = True
        similarity = similarities(torch.tensor([row]))[0]
        served = int((similarity > best).sum()) * len(pool) // len(demand)
        if pool.take(row, f"represents {served:,} other samples"):
            best = torch.maximum(best, similarity)
            advance(1)


def typical(pool: Pool, advance: Advance = lambda _: None) -> None:
    """The most typical row of each cluster, those without a labelled or selected row first, then the largest.

    Typicality is the inverse mean distance to the 20 nearest rows of the cluster. There are as many clusters as
    labelled and selected rows, at most 500.

    Reference: Hacohen, Dekel and Weinshall 2022 (TypiClust), https://arxiv.org/abs/2202.02794
    """
    clusters = cluster(pool.x, min(CLUSTERS, len(pool.labelled) + pool.total, len(pool)), pool.seed)
    size = clusters.bincount()
    filled = clusters[pool.labelled].bincount(minlength=len(size))
    ranked: dict[int, list[int]] = {}
    while not pool.done:
        left = clusters[pool.available].bincount(minlength=len(size))
        cost = filled.double() * 2 * len(pool) + (size < SMALL) * len(pool) - size  # not small, then large, come first
        group = int(cost.masked_fill(left == 0, torch.inf).argmin())
        if group not in ranked:
            ranked[group] = _by_typicality(pool.x, (clusters == group).nonzero()[:, 0])
        row = ranked[group].pop(0)
        if bool(pool.available[row]) and pool.take(row, f"typical of a cluster of {int(size[group]):,} samples"):
            filled[group] += 1
            advance(1)


def random(pool: Pool, advance: Advance = lambda _: None) -> None:
    """Any row with the same probability: what the others must beat."""
    for row in torch.randperm(len(pool), generator=pool.generator()).tolist():
        if pool.done:
            return
        if bool(pool.available[row]) and pool.take(row, "drawn"):
            advance(1)


def uncertain(pool: Pool, probabilities: Tensor, classes: list[str], advance: Advance = lambda _: None) -> None:
    """Rows whose two likeliest classes are the closest, by a classifier fitted to the labelled rows.

    Args:
        pool: with labelled rows.
        probabilities: (N, C) of that classifier.
        classes: C names.
        advance: called with numbers of selected rows.
    """
    likeliest = probabilities.topk(2, 1)
    margin = likeliest.values[:, 0] - likeliest.values[:, 1]  # (N,)
    for row in margin.argsort(stable=True).tolist():
        if pool.done:
            return
        first, second = (classes[place] for place in likeliest.indices[row].tolist())
        if bool(pool.available[row]) and pool.take(
            row, f"uncertain: {first} or {second}, probabilities {float(margin[row]):.2f} apart"
        ):
            advance(1)


STRATEGIES: dict[str, Callable[[Pool, Advance], None]] = {
    "facility": facility_location,
    "k-center": k_center,
    "typical": typical,
    "random": random,
}


def _highest(rows: Tensor, others: Tensor) -> Tensor:
    """(N,) cosine of each row with the most similar of others; -1 where there are none."""
    found = torch.full((len(rows),), -1.0)
    for start in range(0, len(others), TILE):
        part = others[start : start + TILE]
        found = torch.maximum(found, torch.cat([(each @ part.T).amax(1) for each in rows.split(TILE)]))
    return found


def cluster(x: Tensor, k: int, seed: int) -> Tensor:
    """(N,) clusters of (N, D) unit rows by k-means, whose centers a sample of the rows sets where there are many."""
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:CLUSTERED].sort().values
    found = k_means(x[rows], k=min(k, len(rows)), seed=seed, restarts=1, iterations=20)
    if len(rows) == len(x):
        return found
    size = found.bincount()
    centers = torch.zeros(len(size), x.shape[1]).index_add_(0, found, x[rows]) / size[:, None]
    lengths = centers.square().sum(1)
    return torch.cat([(lengths - 2 * part @ centers.T).argmin(1) for part in x.split(TILE)])


def _by_typicality(x: Tensor, rows: Tensor) -> list[int]:
    """The rows of a cluster, most typical first."""
    inside = x[rows]
    near = min(NEAR, len(rows) - 1)
    if near < 1:
        return rows.tolist()
    mean = torch.cat(
        [
            (2 - 2 * (part @ inside.T).topk(near + 1, 1).values[:, 1:]).clamp_min(0).sqrt().mean(1)
            for part in inside.split(TILE)
        ]
    )
    return rows[mean.argsort(stable=True)].tolist()
