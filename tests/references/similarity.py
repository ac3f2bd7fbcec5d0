"""How alike two rows are, and the sums over rows that the losses are made of."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def dot(x: Tensor, y: Tensor) -> Tensor:
    return sum((a * b for a, b in zip(x, y, strict=True)), x.new_zeros(()))


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return dot(x, y) / (dot(x, x).sqrt() * dot(y, y).sqrt())


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Minus the squared distance."""
    return -dot(x - y, x - y)


SIMILARITIES = {"cosine": cosine, "dot": dot, "euclidean": euclidean}


def log_sum_exp(terms: Sequence[Tensor]) -> Tensor:
    """log Σ e^t; the largest term is taken out first, or a distance of 30 at temperature 0.01 would be log 0."""
    largest = max(t.item() for t in terms)
    return largest + sum((t - largest).exp() for t in terms).log()


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x)."""
    return x + torch.log1p((-x).exp()) if x > 0 else torch.log1p(x.exp())


def own_ids(rows: int, ids: Tensor | None) -> list[int]:
    return list(range(rows)) if ids is None else ids.tolist()


def counted(query_ids: Tensor | None, key_ids: Tensor | None, i: int, j: int) -> bool:
    """Whether key j is in the sum of query i."""
    return query_ids is None or key_ids is None or int(query_ids[i]) != int(key_ids[j])


def similarity_logsumexp(
    query: Tensor,
    keys: Tensor,
    scale: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> Tensor:
    rows = []
    for i in range(len(query)):
        terms = [scale * dot(query[i], keys[j]) for j in range(len(keys)) if counted(query_ids, key_ids, i, j)]
        rows.append(log_sum_exp(terms) if terms else query.new_tensor(-math.inf))
    return torch.stack(rows)


def similarity_logsumexp_two_way(
    query: Tensor,
    keys: Tensor,
    scale: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    return (
        similarity_logsumexp(query, keys, scale, query_ids, key_ids),
        similarity_logsumexp(keys, query, scale, key_ids, query_ids),
    )


def similarity_softplus_sum(
    query: Tensor,
    keys: Tensor,
    scale: float | Tensor,
    bias: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> Tensor:
    rows = []
    for i in range(len(query)):
        total = query.new_zeros(())
        for j in range(len(keys)):
            if counted(query_ids, key_ids, i, j):
                total = total + softplus(scale * dot(query[i], keys[j]) + bias)
        rows.append(total)
    return torch.stack(rows)


def top_k_similarity(
    query: Tensor, keys: Tensor, k: int, query_ids: Tensor | None = None, key_ids: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    values, index = [], []
    for i in range(len(query)):
        found = [(dot(query[i], keys[j]), j) for j in range(len(keys)) if counted(query_ids, key_ids, i, j)]
        found.sort(key=lambda pair: -pair[0].item())
        values.append(torch.stack([value for value, _ in found[:k]]))
        index.append([j for _, j in found[:k]])
    return torch.stack(values), torch.tensor(index)
