"""One positive, or several, against a sum of exponentials."""

import math

import torch
from torch import Tensor

from tests.references.similarity import SIMILARITIES, cosine, log_sum_exp, own_ids

Number = float | Tensor


def info_nce(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None,
    temperature: Number,
    ids: Tensor | None = None,
    negative_ids: Tensor | None = None,
    similarity: str = "cosine",
) -> Tensor:
    """van den Oord et al. 2018, eq. 4; with `negatives` He et al. 2020, eq. 1."""
    alike = SIMILARITIES[similarity]
    of_query = own_ids(len(query), ids)
    rows = []
    for i in range(len(query)):
        near = alike(query[i], positive[i]) / temperature
        if negatives is None:
            others = [positive[j] for j in range(len(positive)) if of_query[j] != of_query[i]]
        elif negative_ids is None:
            others = list(negatives)
        else:
            others = [negatives[j] for j in range(len(negatives)) if int(negative_ids[j]) != of_query[i]]
        far = [alike(query[i], other) / temperature for other in others]
        rows.append(log_sum_exp([near, *far]) - near)
    return torch.stack(rows)


def _views(z1: Tensor, z2: Tensor, ids: Tensor | None) -> list[tuple[Tensor, Tensor, list[Tensor]]]:
    """Of each of the 2B views: itself, its twin, its negatives."""
    batch, of_sample = len(z1), own_ids(len(z1), ids)
    both = [*z1, *z2]
    found = []
    for i in range(2 * batch):
        twin = i + batch if i < batch else i - batch
        negatives = [both[j] for j in range(2 * batch) if of_sample[j % batch] != of_sample[i % batch]]
        found.append((both[i], both[twin], negatives))
    return found


def nt_xent(z1: Tensor, z2: Tensor, temperature: Number, ids: Tensor | None = None) -> Tensor:
    """Chen et al. 2020, eq. 1."""
    rows = []
    for view, twin, negatives in _views(z1, z2, ids):
        near = cosine(view, twin) / temperature
        rows.append(log_sum_exp([near, *(cosine(view, other) / temperature for other in negatives)]) - near)
    return torch.stack(rows)


def decoupled(z1: Tensor, z2: Tensor, temperature: Number, ids: Tensor | None = None) -> Tensor:
    """Yeh et al. 2022, eq. 6."""
    rows = []
    for view, twin, negatives in _views(z1, z2, ids):
        far = [cosine(view, other) / temperature for other in negatives]
        rows.append(-cosine(view, twin) / temperature + log_sum_exp(far) if far else z1.new_zeros(()))
    return torch.stack(rows)


def symmetric_info_nce(z1: Tensor, z2: Tensor, temperature: Number, ids: Tensor | None = None) -> Tensor:
    """Radford et al. 2021, fig. 3."""
    there = info_nce(z1, z2, None, temperature, ids)
    back = info_nce(z2, z1, None, temperature, ids)
    return torch.stack([(a + b) / 2 for a, b in zip(there, back, strict=True)])


def debiased(z1: Tensor, z2: Tensor, temperature: Number, positive_prior: float, ids: Tensor | None = None) -> Tensor:
    """Chuang et al. 2020, eqs. 7 and 8 with one positive."""
    rows = []
    for view, twin, negatives in _views(z1, z2, ids):
        near, count = (cosine(view, twin) / temperature).exp(), len(negatives)
        far = sum(((cosine(view, other) / temperature).exp() for other in negatives), z1.new_zeros(()))
        estimate = (far - count * positive_prior * near) / (1 - positive_prior)
        floor = count * (-1 / torch.as_tensor(temperature).to(z1)).exp()
        rows.append(torch.log1p((estimate if estimate > floor else floor) / near))
    return torch.stack(rows)


def hard_negative(
    z1: Tensor,
    z2: Tensor,
    temperature: Number,
    beta: float,
    positive_prior: float = 0.0,
    ids: Tensor | None = None,
) -> Tensor:
    """Robinson et al. 2021, eq. 4 as the authors' code has it: weights `neg ** beta`, divided by their mean."""
    rows = []
    for view, twin, negatives in _views(z1, z2, ids):
        near, count = (cosine(view, twin) / temperature).exp(), len(negatives)
        if count == 0:
            rows.append(z1.new_zeros(()))
            continue
        far = [(cosine(view, other) / temperature).exp() for other in negatives]
        importance = [(beta * e.log()).exp() for e in far]
        mean = sum(importance) / count
        reweighted = sum(w * e / mean for w, e in zip(importance, far, strict=True))
        estimate = (reweighted - count * positive_prior * near) / (1 - positive_prior)
        floor = count * (-1 / torch.as_tensor(temperature).to(z1)).exp()
        rows.append(torch.log1p((estimate if estimate > floor else floor) / near))
    return torch.stack(rows)


def top_k_info_nce(z1: Tensor, z2: Tensor, temperature: Number, k: int, ids: Tensor | None = None) -> Tensor:
    rows = []
    for view, twin, negatives in _views(z1, z2, ids):
        near = cosine(view, twin) / temperature
        hardest = sorted((cosine(view, other) for other in negatives), key=lambda s: -s.item())[:k]
        rows.append(log_sum_exp([near, *(s / temperature for s in hardest)]) - near)
    return torch.stack(rows)


def sup_con(z: Tensor, labels: Tensor, temperature: Number) -> Tensor:
    """Khosla et al. 2020, eq. 2; NaN for a row alone in its class, which the paper leaves undefined."""
    rows = []
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        positives = [p for p in others if int(labels[p]) == int(labels[i])]
        if not positives:
            rows.append(z.new_tensor(math.nan))
            continue
        everything = log_sum_exp([cosine(z[i], z[a]) / temperature for a in others])
        total = sum(cosine(z[i], z[p]) / temperature - everything for p in positives)
        rows.append(-total / len(positives))
    return torch.stack(rows)
