"""Triplets, every one of them visited."""

import torch
from torch import Tensor

from tests.references.similarity import cosine


def _apart(x: Tensor, y: Tensor, distance: str) -> Tensor:
    return 1 - cosine(x, y) if distance == "cosine" else (x - y).square().sum().sqrt()


def triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, distance: str = "euclidean") -> Tensor:
    rows = []
    for a, p, n in zip(anchor, positive, negative, strict=True):
        cost = _apart(a, p, distance) - _apart(a, n, distance) + margin
        rows.append(cost if cost > 0 else 0 * cost)
    return torch.stack(rows)


def batch_triplet(z: Tensor, labels: Tensor, margin: float, mining: str, distance: str = "euclidean") -> Tensor:
    """Hermans et al. 2017, eqs. 5 and 7; Schroff et al. 2015, section 3.2. A triple loop over (a, p, n)."""
    costs = []
    for a in range(len(z)):
        positives = [p for p in range(len(z)) if p != a and int(labels[p]) == int(labels[a])]
        negatives = [n for n in range(len(z)) if int(labels[n]) != int(labels[a])]
        if not positives or not negatives:
            continue
        near = [_apart(z[a], z[p], distance) for p in positives]
        far = [_apart(z[a], z[n], distance) for n in negatives]
        if mining == "hard":
            costs.append(max(near, key=Tensor.item) - min(far, key=Tensor.item) + margin)
        elif mining == "semi-hard":
            for d in near:
                beyond = [f for f in far if f > d]
                chosen = min(beyond, key=Tensor.item) if beyond else max(far, key=Tensor.item)
                costs.append(d - chosen + margin)
        else:
            costs.extend(d - f + margin for d in near for f in far if d - f + margin > 0)
    costs = [cost if cost > 0 else 0 * cost for cost in costs]
    return sum(costs) / len(costs) if costs else z.new_zeros(())
