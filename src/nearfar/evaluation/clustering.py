"""Clustering: do the groups that the embeddings form of themselves agree with the classes?"""

import warnings

import torch
from torch import Tensor

from nearfar.devices import in_float64
from nearfar.losses.arguments import check_ids, check_rows, l2_normalize

_ENTRIES = 1 << 22  # distances held at once


@torch.no_grad()
def k_means(z: Tensor, *, k: int, seed: int, restarts: int = 5, iterations: int = 100) -> Tensor:
    """(N,) clusters of (N, D) rows as they are: Lloyd's iteration from k-means++ starts, the best of some restarts.

    Args:
        z: (N, D).
        k: clusters, at most N. One that loses all its rows gets the row that is farthest from its centre.
        seed: of the starts.
        restarts: of which the least sum of squared distances wins.
        iterations: at most, of each.

    Reference: Arthur & Vassilvitskii 2007, "k-means++: the advantages of careful seeding".

    >>> k_means(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), k=2, seed=0).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """
    check_rows("z", z)
    if not 1 <= k <= len(z):
        raise ValueError(f"k is {k}, expected a whole number from 1 to {len(z)}, the rows")
    generator = torch.Generator().manual_seed(seed)
    x = z.float()
    best: tuple[float, Tensor] | None = None
    for _ in range(restarts):
        centres = _spread(x, k, generator)
        clusters = torch.full((len(x),), -1, device=x.device)
        for _ in range(iterations):
            distance, nearest = _nearest(x, centres)
            if torch.equal(nearest, clusters):
                break
            clusters = nearest
            size = clusters.bincount(minlength=k)
            centres = torch.zeros_like(centres).index_add_(0, clusters, x) / size.clamp_min(1)[:, None]
            empty = (size == 0).nonzero()[:, 0]
            centres[empty] = x[distance.topk(len(empty)).indices]
        distance, clusters = _nearest(x, centres)
        cost = float(in_float64(distance).sum())
        if best is None or cost < best[0]:
            best = cost, clusters
    assert best is not None
    return best[1]


def _nearest(x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance of each row to its nearest centre, and which that is."""
    lengths = centres.square().sum(1)
    found = [(lengths - 2 * part @ centres.T).min(1) for part in x.split(max(1, _ENTRIES // len(centres)))]
    distance = torch.cat([f.values for f in found]) + x.square().sum(1)
    return distance.clamp_min(0), torch.cat([f.indices for f in found])


def _spread(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k rows, each drawn in proportion to its squared distance from those before it."""
    rows = [int(torch.randint(len(x), (1,), generator=generator))]
    distance = (x - x[rows[0]]).square().sum(1)
    for _ in range(k - 1):
        weights = distance.cpu().double()
        weights = weights if bool(weights.sum() > 0) else torch.ones_like(weights)  # all rows alike
        rows.append(int(torch.multinomial(weights, 1, generator=generator)))
        distance = torch.minimum(distance, (x - x[rows[-1]]).square().sum(1))
    return x[rows].clone()


def purity(clusters: Tensor, labels: Tensor) -> float:
    """The share of rows whose class is the commonest of their cluster; 1 for as many clusters as rows.

    >>> purity(torch.tensor([0, 0, 0, 1]), torch.tensor([2, 2, 5, 5]))
    0.75
    """
    check_ids("clusters", clusters, len(labels), labels)
    table = torch.zeros(int(clusters.max()) + 1, int(labels.max()) + 1, dtype=torch.long)
    table.index_put_((clusters.cpu(), labels.cpu()), torch.ones(len(labels), dtype=torch.long), accumulate=True)
    return int(table.max(1).values.sum()) / len(labels)


def agreement(clusters: Tensor, labels: Tensor) -> dict[str, float]:
    """NMI (arithmetic mean of the entropies) and ARI by torchmetrics, and purity."""
    from nearfar import _torchvision  # noqa: F401, before torchmetrics

    import torchmetrics.functional.clustering as tm  # isort: skip

    clusters, labels = clusters.cpu(), labels.cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of how torchmetrics builds its sparse table
        nmi = tm.normalized_mutual_info_score(clusters, labels, "arithmetic")
        ari = tm.adjusted_rand_score(clusters, labels)
    return {"NMI": float(nmi), "ARI": float(ari), "purity": purity(clusters, labels)}


def cluster_agreement(z: Tensor, labels: Tensor, *, seed: int) -> tuple[Tensor, dict[str, float]]:
    """k-means of the unit rows, with as many clusters as there are classes, and how it agrees with them."""
    clusters = k_means(l2_normalize(z), k=len(labels.unique()), seed=seed)
    return clusters, agreement(clusters, labels)
