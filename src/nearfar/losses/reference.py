"""Every loss as its paper defines it: a plain loop over rows, which shares no code with the engine.

`nearfar check` and the tests compare `nearfar.losses` with these functions, value and gradient, in float64. They take
the same arguments, and return the loss of each row (a scalar where the definition has no rows). They are slow.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

Number = float | Tensor
Ids = Tensor | None  # pairs of equal ids are excluded; None: no pair is


def dot(x: Tensor, y: Tensor) -> Tensor:
    """(...,), inner products of rows (..., D)."""
    return (x * y).sum(-1)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return dot(x, y) / (dot(x, x).sqrt() * dot(y, y).sqrt())


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Minus the squared distance."""
    return -dot(x - y, x - y)


SIMILARITIES = {"cosine": cosine, "dot": dot, "euclidean": euclidean}


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x)."""
    return torch.logaddexp(x, torch.zeros_like(x))


def cross_entropy(positive: Tensor, negatives: Tensor) -> Tensor:
    """`-log e^{s⁺} / (e^{s⁺} + Σ e^{s⁻})` of one logit s⁺ and the (M,) logits s⁻."""
    return torch.cat([positive[None], negatives]).logsumexp(0) - positive


def other_ids(key_ids: Ids, query_ids: Ids, i: int, keys: int) -> Tensor:
    """(keys,), the keys that count for query i: those of another id; all of them without ids."""
    if query_ids is None or key_ids is None:
        return torch.ones(keys, dtype=torch.bool)
    return key_ids != query_ids[i]


def similarity_logsumexp(
    query: Tensor, keys: Tensor, scale: Number, query_ids: Ids = None, key_ids: Ids = None
) -> Tensor:
    counted = (other_ids(key_ids, query_ids, i, len(keys)) for i in range(len(query)))
    return torch.stack([(scale * dot(q, keys[mask])).logsumexp(0) for q, mask in zip(query, counted, strict=True)])


def similarity_logsumexp_two_way(
    query: Tensor, keys: Tensor, scale: Number, query_ids: Ids = None, key_ids: Ids = None
) -> tuple[Tensor, Tensor]:
    rows = similarity_logsumexp(query, keys, scale, query_ids, key_ids)
    return rows, similarity_logsumexp(keys, query, scale, key_ids, query_ids)


def similarity_softplus_sum(
    query: Tensor, keys: Tensor, scale: Number, bias: Number, query_ids: Ids = None, key_ids: Ids = None
) -> Tensor:
    counted = (other_ids(key_ids, query_ids, i, len(keys)) for i in range(len(query)))
    return torch.stack([softplus(scale * dot(q, keys[m]) + bias).sum() for q, m in zip(query, counted, strict=True)])


def top_k_similarity(
    query: Tensor, keys: Tensor, k: int, query_ids: Ids = None, key_ids: Ids = None
) -> tuple[Tensor, Tensor]:
    values, index = [], []
    for i, q in enumerate(query):
        counted = other_ids(key_ids, query_ids, i, len(keys)).nonzero()[:, 0]
        similarity, order = dot(q, keys[counted]).sort(descending=True, stable=True)
        values.append(similarity[:k])
        index.append(counted[order[:k]])
    return torch.stack(values), torch.stack(index)


def info_nce(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    temperature: Number = 1.0,
    ids: Ids = None,
    negative_ids: Ids = None,
    similarity: str = "cosine",
) -> Tensor:
    """van den Oord et al. 2018, eq. 4; with `negatives` He et al. 2020, eq. 1."""
    s = SIMILARITIES[similarity]
    if negatives is None:
        ids = negative_ids = torch.arange(len(query)) if ids is None else ids
        negatives = positive
    rows = []
    for i, q in enumerate(query):
        others = negatives[other_ids(negative_ids, ids, i, len(negatives))]
        rows.append(cross_entropy(s(q, positive[i]) / temperature, s(q, others) / temperature))
    return torch.stack(rows)


def two_views(z1: Tensor, z2: Tensor, ids: Ids) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each of the 2B views: its cosine with the other view of its sample, and those with its negatives (M,)."""
    both = torch.cat([z1, z2])
    ids = (torch.arange(len(z1)) if ids is None else ids).repeat(2)
    for i in range(len(both)):
        s = cosine(both[i], both)
        yield s[(i + len(z1)) % len(both)], s[ids != ids[i]]


def nt_xent(z1: Tensor, z2: Tensor, temperature: Number, ids: Ids = None) -> Tensor:
    """Chen et al. 2020, eq. 1."""
    return torch.stack([cross_entropy(s / temperature, n / temperature) for s, n in two_views(z1, z2, ids)])


def nt_xent_views(
    views: Sequence[Tensor], local: Sequence[Tensor] = (), temperature: Number = 1.0, ids: Ids = None
) -> Tensor:
    """Chen et al. 2020, eq. 1, its mean over the other views of the sample; local views are queries only."""
    ids = torch.arange(len(views[0])) if ids is None else ids
    rows = []
    for own, z in [*enumerate(views), *((None, z) for z in local)]:
        for i in range(len(z)):
            negatives = torch.cat([cosine(z[i], other[ids != ids[i]]) for other in views]) / temperature
            positives = [cosine(z[i], other[i]) / temperature for n, other in enumerate(views) if n != own]
            rows.append(torch.stack([cross_entropy(s, negatives) for s in positives]).mean())
    return torch.stack(rows)


def decoupled(z1: Tensor, z2: Tensor, temperature: Number, ids: Ids = None) -> Tensor:
    """Yeh et al. 2022, eq. 6; 0 without negatives."""
    rows = []
    for positive, negatives in two_views(z1, z2, ids):
        row = (negatives / temperature).logsumexp(0) - positive / temperature
        rows.append(row if len(negatives) else z1.new_zeros(()))
    return torch.stack(rows)


def symmetric_info_nce(z1: Tensor, z2: Tensor, temperature: Number, ids: Ids = None) -> Tensor:
    """Radford et al. 2021, fig. 3."""
    return (info_nce(z1, z2, None, temperature, ids) + info_nce(z2, z1, None, temperature, ids)) / 2


def debiased(z1: Tensor, z2: Tensor, temperature: Number, positive_prior: float, ids: Ids = None) -> Tensor:
    """Chuang et al. 2020, eqs. 7 and 8 with one positive."""
    rows = []
    for positive, negatives in two_views(z1, z2, ids):
        each = (negatives / temperature).exp()  # (M,)
        rows.append(corrected(each.sum(), len(each), positive, temperature, positive_prior))
    return torch.stack(rows)


def hard_negative(
    z1: Tensor, z2: Tensor, temperature: Number, beta: float, positive_prior: float = 0.0, ids: Ids = None
) -> Tensor:
    """Robinson et al. 2021, eq. 4 as the authors' code has it: weights `negatives ** beta`, divided by their mean."""
    rows = []
    for positive, negatives in two_views(z1, z2, ids):
        each = (negatives / temperature).exp()  # (M,)
        importance = (beta * each.log()).exp()
        total = (importance * each / importance.mean()).sum()
        rows.append(corrected(total, len(each), positive, temperature, positive_prior))
    return torch.stack(rows)


def corrected(total: Tensor, count: int, positive: Tensor, temperature: Number, positive_prior: float) -> Tensor:
    """The loss, with the expected part of positives taken out of the sum over the negatives, down to a floor."""
    exp_positive = (positive / temperature).exp()
    estimate = (total - count * positive_prior * exp_positive) / (1 - positive_prior)
    floor = count * (-1 / torch.as_tensor(temperature).to(total)).exp()
    return torch.log1p((estimate if estimate > floor else floor) / exp_positive)


def top_k_info_nce(z1: Tensor, z2: Tensor, temperature: Number, k: int, ids: Ids = None) -> Tensor:
    """NT-Xent with the k most similar negatives of each view."""
    rows = []
    for positive, negatives in two_views(z1, z2, ids):
        hardest = negatives.sort(descending=True).values[:k]
        rows.append(cross_entropy(positive / temperature, hardest / temperature))
    return torch.stack(rows)


def sup_con(z: Tensor, labels: Tensor, temperature: Number) -> Tensor:
    """Khosla et al. 2020, eq. 2; NaN for a row alone in its class, which the paper leaves undefined."""
    rows = []
    for i in range(len(z)):
        others = torch.arange(len(z)) != i
        logits = cosine(z[i], z[others]) / temperature  # (N - 1,)
        log_p = logits - logits.logsumexp(0)
        rows.append(-log_p[labels[others] == labels[i]].mean())
    return torch.stack(rows)


def sigmoid_pairs(z1: Tensor, z2: Tensor, logit_scale: Number, logit_bias: Number, ids: Ids = None) -> Tensor:
    """Zhai et al. 2023, eq. 2: Σ_j log(1 + e^{-y_ij (t s_ij + b)}), y = 1 on the diagonal and -1 elsewhere."""
    ids = torch.arange(len(z1)) if ids is None else ids
    rows = []
    for i in range(len(z1)):
        logits = logit_scale * cosine(z1[i], z2) + logit_bias  # (B,)
        rows.append(softplus(-logits[i]) + softplus(logits[ids != ids[i]]).sum())
    return torch.stack(rows)


def cosine_regression(prediction: Tensor, target: Tensor) -> Tensor:
    """Grill et al. 2020, eq. 2: the squared distance of the normalized rows, the target held fixed."""
    pairs = zip(prediction, target.detach(), strict=True)
    return torch.stack([-euclidean(p / dot(p, p).sqrt(), z / dot(z, z).sqrt()) for p, z in pairs])


def estimate_log_normalizer(query: Tensor, noise: Tensor, temperature: Number, bank_size: int) -> Tensor:
    """Wu et al. 2018, eq. 8, over every query of the batch: log of n times the mean exponential."""
    noise_of = noise if noise.ndim == 3 else noise.expand(len(query), *noise.shape)
    each = torch.stack([(cosine(q, others) / temperature).exp() for q, others in zip(query, noise_of, strict=True)])
    return (bank_size * each.mean()).log().detach()


def nce(
    query: Tensor,
    positive: Tensor,
    noise: Tensor,
    temperature: Number,
    bank_size: int,
    log_normalizer: Number,
    proximal: float = 0.0,
) -> Tensor:
    """Wu et al. 2018, eqs. 4 to 7 and 9."""
    z = torch.as_tensor(log_normalizer).to(query).exp()
    noise_of = noise if noise.ndim == 3 else noise.expand(len(query), *noise.shape)
    rows = []
    for q, memory, others in zip(query, positive, noise_of, strict=True):
        noise_density = len(others) / bank_size  # m Pₙ
        p_data, p_noise = (cosine(q, memory) / temperature).exp() / z, (cosine(q, others) / temperature).exp() / z
        loss = -(p_data / (p_data + noise_density)).log() - (noise_density / (p_noise + noise_density)).log().sum()
        moved = -euclidean(q / dot(q, q).sqrt(), memory / dot(memory, memory).sqrt())
        rows.append(loss + proximal * moved)
    return torch.stack(rows)


def distance_between(x: Tensor, y: Tensor, distance: str) -> Tensor:
    return 1 - cosine(x, y) if distance == "cosine" else (-euclidean(x, y)).sqrt()


def triplet(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, distance: str = "euclidean") -> Tensor:
    """Schroff et al. 2015, eq. 1, with the distance not squared."""
    rows = []
    for a, p, n in zip(anchor, positive, negative, strict=True):
        rows.append((distance_between(a, p, distance) - distance_between(a, n, distance) + margin).relu())
    return torch.stack(rows)


def batch_triplet(
    z: Tensor, labels: Tensor, margin: float, mining: str = "hard", distance: str = "euclidean"
) -> Tensor:
    """Hermans et al. 2017, eqs. 5 and 7; Schroff et al. 2015, section 3.2."""
    costs = []
    for a in range(len(z)):
        same = labels == labels[a]
        near = distance_between(z[a], z[same & (torch.arange(len(z)) != a)], distance)  # to each positive
        far = distance_between(z[a], z[~same], distance)  # to each negative
        if len(near) == 0 or len(far) == 0:
            continue
        if mining == "hard":
            costs.append((near.max() - far.min() + margin).relu())
        elif mining == "semi-hard":
            for d in near:
                beyond = far[far > d]
                costs.append((d - (beyond.min() if len(beyond) else far.max()) + margin).relu())
        else:
            every = (near[:, None] - far + margin).flatten()
            costs.extend(every[every > 0])
    return torch.stack(costs).mean() if costs else z.new_zeros(())


def barlow_twins(z1: Tensor, z2: Tensor, redundancy_weight: float = 0.0051) -> Tensor:
    """Zbontar et al. 2021, eq. 1, with the authors' batch-norm (biased variance, 1e-5 added to it)."""

    def standardized(column: Tensor) -> Tensor:
        centered = column - column.mean()
        return centered / (centered.square().mean() + 1e-5).sqrt()

    total = z1.new_zeros(())
    for a, x in enumerate(z1.T):
        for b, y in enumerate(z2.T):
            correlation = (standardized(x) * standardized(y)).mean()
            total = total + ((1 - correlation) ** 2 if a == b else redundancy_weight * correlation**2)
    return total


def vicreg(
    z1: Tensor,
    z2: Tensor,
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
) -> Tensor:
    """Bardes et al. 2022, eqs. 1 to 6, with the means of the authors' code."""
    rows, features = z1.shape
    total = invariance_weight * (z1 - z2).square().sum() / (rows * features)
    for z in (z1, z2):
        for a, x in enumerate(z.T):
            for b, y in enumerate(z.T):
                covariance = ((x - x.mean()) * (y - y.mean())).sum() / (rows - 1)
                if a == b:
                    total = total + variance_weight * (1 - (covariance + 1e-4).sqrt()).relu() / features / 2
                else:
                    total = total + covariance_weight * covariance**2 / features
    return total


def vicreg_views(
    views: Sequence[Tensor],
    local: Sequence[Tensor] = (),
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
) -> Tensor:
    """Bardes et al. 2022: distances averaged over pairs with one of `views` at least, statistics over all views."""
    every = [*views, *local]
    pairs = [(a, b) for a in range(len(every)) for b in range(min(a, len(views)))]
    distances = [(every[a] - every[b]).square().mean() for a, b in pairs]
    statistics = [vicreg(z, z, 0.0, variance_weight, covariance_weight) for z in every]  # of twice the same view
    return invariance_weight * torch.stack(distances).mean() + torch.stack(statistics).mean()
