"""InfoNCE and its variants: functions of one positive similarity and one log-sum-exp over the negatives."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from nearfar.devices import WITHOUT_FLOAT64
from nearfar.losses import reference
from nearfar.losses.arguments import (
    Reduction,
    check_choice,
    check_compatible,
    check_ids,
    check_pair,
    check_rows,
    inverse_temperature,
    l2_normalize,
    reduce_loss,
    softplus,
    upcast_half,
)
from nearfar.losses.engine.backends import require_all_rows
from nearfar.losses.engine.row_losses import loss_both_ways, loss_of_pairs, loss_of_views, without_negatives_zero
from nearfar.losses.engine.similarity import paired_similarity, sample_ids, similarity_logsumexp
from nearfar.losses.engine.stacked_views import stack_many_views

Similarity = Literal["cosine", "dot", "euclidean"]


def info_nce(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float | Tensor,
    ids: Tensor | None = None,
    negative_ids: Tensor | None = None,
    similarity: Similarity = "cosine",
    reduction: Reduction = "mean",
) -> Tensor:
    """Each query must find its positive among negatives: `-log e^{s⁺/τ} / (e^{s⁺/τ} + Σ e^{s⁻/τ})`.

    Args:
        query, positive: (B, D); row i of `positive` belongs to row i of `query`.
        negatives: (M, D), shared by all queries, as in MoCo's queue. None: the positives of the other rows.
        temperature: divides the similarities; may be a tensor that is learned.
        ids: (B,), rows with equal ids are never negatives of each other.
        negative_ids: (M,), with `negatives` and `ids`: negatives with the query's id are excluded.
        similarity: "cosine" (rows are normalized here), "dot", or "euclidean": minus the squared distance.
        reduction: "mean", "sum" or "none" over the B queries.

    Returns:
        In nats: a scalar, or (B,) for "none". The loss of a query without negatives is 0.

    Reference: van den Oord et al. 2018, eq. 4, https://arxiv.org/abs/1807.03748; with a queue He et al. 2020,
    eq. 1, https://arxiv.org/abs/1911.05722

    >>> import math
    >>> z = torch.eye(4)  # each positive at similarity 1, each of three negatives at 0
    >>> math.isclose(info_nce(z, z, temperature=0.5), math.log(1 + 3 * math.exp(-2)), rel_tol=1e-6)
    True
    """
    check_pair("query", query, "positive", positive)
    check_choice("similarity", similarity, ("cosine", "dot", "euclidean"))
    if negatives is None and negative_ids is None and similarity != "euclidean":
        return loss_of_pairs(query, positive, temperature, ids, reduction, normalize=similarity == "cosine")
    query_ids, key_ids = ids_of_queries_and_keys(query, negatives, ids, negative_ids)
    prepare = l2_normalize if similarity == "cosine" else upcast_half
    query, positive = prepare(query), prepare(positive)
    keys = positive if negatives is None else prepare(negatives)
    scale = inverse_temperature(temperature, query)
    if similarity == "euclidean":
        require_all_rows("euclidean similarity")
        logit = -scale * (query - positive).square().sum(-1)  # (B,)
        query, keys = _distance_as_inner_product(query, keys)
    else:
        logit = scale * paired_similarity(query, positive)  # (B,)
    logsumexp = similarity_logsumexp(query, keys, scale=scale, query_ids=query_ids, key_ids=key_ids)  # (B,)
    return reduce_loss(softplus(logsumexp.to(logit) - logit), reduction)


def nt_xent(
    z1: Tensor, z2: Tensor, *, temperature: float | Tensor, ids: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """SimCLR's loss: each view must find the other view of its sample among the other 2B - 1 views.

    Args:
        z1, z2: (B, D), two views of the same B samples; normalized here.
        temperature: divides the cosine similarities; may be a tensor that is learned.
        ids: (B,), rows with equal ids are never negatives of each other.
        reduction: "mean", "sum" or "none" over the 2B views.

    Returns:
        In nats: a scalar, or (2B,) for "none", the views of z1 first. Collapsed embeddings give log(2B - 1).

    Reference: Chen et al. 2020, eq. 1, https://arxiv.org/abs/2002.05709

    >>> import math
    >>> same = torch.ones(8, 16)
    >>> math.isclose(nt_xent(same, same, temperature=0.1), math.log(15), rel_tol=1e-6)
    True
    """
    check_pair("z1", z1, "z2", z2)
    return loss_of_views(z1, z2, temperature, ids, reduction)


def nt_xent_views(
    views: Sequence[Tensor],
    local: Sequence[Tensor] = (),
    *,
    temperature: float | Tensor,
    without_positive: bool = False,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """NT-Xent of any number of views: each must find each other view of its sample among those of other samples.

    The loss of a row is the mean over its positives of `-log e^{s⁺/τ} / (e^{s⁺/τ} + Σ e^{s⁻/τ})`: the K - 1 other
    positives take no part in it. The negatives are the K views of all other samples. A local view finds its K
    positives among the same views; it is no other row's positive or negative. Two views give `nt_xent`, bit for bit.

    Args:
        views: K tensors (B, D), views of the same B samples; normalized here.
        local: L tensors (B, D), views of small parts of them, which are compared with `views` only.
        temperature: divides the cosine similarities; may be a tensor that is learned.
        without_positive: leave the positive out of the denominator, as `decoupled` does for two views.
        ids: (B,), rows with equal ids are never negatives of each other.
        reduction: "mean", "sum" or "none" over the (K + L) · B rows.

    Returns:
        In nats: a scalar, or ((K + L) · B,) for "none", view after view. Collapsed embeddings give log(K (B - 1) + 1).

    Reference: Chen et al. 2020, eq. 1, https://arxiv.org/abs/2002.05709; local views: Caron et al. 2020, section 3.2,
    https://arxiv.org/abs/2006.09882

    >>> import math
    >>> same = torch.ones(8, 16)
    >>> math.isclose(nt_xent_views([same] * 3, temperature=0.1), math.log(22), rel_tol=1e-6)
    True
    """
    if len(views) == 2 and not local:
        check_pair("views[0]", views[0], "views[1]", views[1])
        of_two = decoupled if without_positive else nt_xent
        return of_two(views[0], views[1], temperature=temperature, ids=ids, reduction=reduction)
    z, view_ids, small, small_ids = stack_many_views(views, local, ids)
    scale = inverse_temperature(temperature, z)
    count = len(views)
    z_by_view = z.unflatten(0, (count, -1))  # (K, B, D)
    first, second = (list(of_pair) for of_pair in zip(*combinations(range(count), 2), strict=True))
    similarity = torch.stack(
        [paired_similarity(z_by_view[a], z_by_view[b]) for a, b in zip(first, second, strict=True)]
    )
    negatives = similarity_logsumexp(z, z, scale=scale, query_ids=view_ids, key_ids=view_ids, max_norm=1.0)
    negatives = negatives.unflatten(0, (count, -1))  # (K, B)
    of_owner = torch.stack([negatives[own] for own in first + second])
    of_pair = without_negatives_zero if without_positive else softplus
    of_pairs = of_pair(of_owner - (scale * similarity).repeat(2, 1))  # (2P, B), of both views of a pair
    of_view = [[row for row, own in zip(of_pairs, first + second, strict=True) if own == i] for i in range(count)]
    loss = torch.stack([torch.stack(own).sum(0) for own in of_view]) / (count - 1)  # (K, B)
    if small is not None:
        small_by_view = small.unflatten(0, (len(local), -1))  # (L, B, D)
        positive = scale * paired_similarity(small_by_view[:, None], z_by_view)  # (L, K, B)
        negatives = similarity_logsumexp(small, z, scale=scale, query_ids=small_ids, key_ids=view_ids)  # (L · B,)
        of_pairs = of_pair(negatives.unflatten(0, (len(local), 1, -1)) - positive)  # (L, K, B)
        loss = torch.cat([loss, of_pairs.mean(1)])  # (K + L, B)
    return reduce_loss(loss.flatten(), reduction)


def decoupled(
    z1: Tensor, z2: Tensor, *, temperature: float | Tensor, ids: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """NT-Xent without the positive in the denominator: an easy positive no longer shrinks the negatives' gradient.

    Args:
        z1, z2, temperature, ids, reduction: as for `nt_xent`.

    Returns:
        In nats, possibly below zero: a scalar, or (2B,) for "none". The loss of a view without negatives is 0.

    Reference: Yeh et al. 2022, eq. 6, https://arxiv.org/abs/2110.06848
    """
    check_pair("z1", z1, "z2", z2)
    return loss_of_views(z1, z2, temperature, ids, reduction, without_positive=True)


def symmetric_info_nce(
    z1: Tensor, z2: Tensor, *, temperature: float | Tensor, ids: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    """CLIP's loss: each row of z1 must find its partner among z2, and the reverse.

    Args:
        z1, z2: (B, D), for instance images and their captions; normalized here.
        temperature: divides the cosine similarities (1 / CLIP's logit scale); may be a tensor that is learned.
        ids: (B,), rows with equal ids (the same caption, the same image) are never negatives of each other.
        reduction: "mean", "sum" or "none" over the B pairs.

    Returns:
        In nats, the mean of both directions: a scalar, or (B,) for "none".

    Reference: Radford et al. 2021, fig. 3, https://arxiv.org/abs/2103.00020
    """
    check_pair("z1", z1, "z2", z2)
    return loss_both_ways(z1, z2, temperature, ids, reduction)


def ids_of_queries_and_keys(
    query: Tensor, negatives: Tensor | None, ids: Tensor | None, negative_ids: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Ids of queries and keys, checked: without negatives the same, or a different one for each row."""
    if negatives is None:
        if negative_ids is not None:
            raise ValueError("negative_ids is set without negatives, expected both or neither")
        ids = sample_ids(query, ids)
        return ids, ids
    check_rows("negatives", negatives)
    check_compatible("negatives", negatives, "query", query, features_only=True)
    if (ids is None) != (negative_ids is None):
        raise ValueError("with negatives, expected both ids and negative_ids or neither: one alone excludes nothing")
    if ids is not None and negative_ids is not None:
        check_ids("ids", ids, query.shape[0], query)
        check_ids("negative_ids", negative_ids, negatives.shape[0], query)
    return ids, negative_ids


def _distance_as_inner_product(query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with two more features, whose inner products are `-|query_i - keys_j|²`.

    A small distance between long rows is a difference of large squares: in float64, where the device has it.
    """
    if query.device.type not in WITHOUT_FLOAT64:
        query, keys = query.double(), keys.double()
    center = keys.detach().mean(0)  # a shift changes no distance, and keeps the squares small
    q, k = query - center, keys - center
    q_squared, k_squared = q.square().sum(1, keepdim=True), k.square().sum(1, keepdim=True)
    one_q, one_k = torch.ones_like(q_squared), torch.ones_like(k_squared)
    return torch.cat([2 * q, -q_squared, -one_q], 1), torch.cat([k, one_k, k_squared], 1)


@reference.definition_of(info_nce)
def info_nce_reference(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    temperature: reference.Number = 1.0,
    ids: reference.Ids = None,
    negative_ids: reference.Ids = None,
    similarity: str = "cosine",
) -> Tensor:
    """van den Oord et al. 2018, eq. 4; with `negatives` He et al. 2020, eq. 1."""
    s = reference.SIMILARITIES[similarity]
    if negatives is None:
        ids = negative_ids = torch.arange(len(query)) if ids is None else ids
        negatives = positive
    rows = []
    for i, q in enumerate(query):
        others = negatives[reference.other_ids(negative_ids, ids, i, len(negatives))]
        rows.append(reference.cross_entropy(s(q, positive[i]) / temperature, s(q, others) / temperature))
    return torch.stack(rows)


@reference.definition_of(nt_xent)
def nt_xent_reference(z1: Tensor, z2: Tensor, temperature: reference.Number, ids: reference.Ids = None) -> Tensor:
    """Chen et al. 2020, eq. 1."""
    return torch.stack(
        [reference.cross_entropy(s / temperature, n / temperature) for s, n in reference.two_views(z1, z2, ids)]
    )


@reference.definition_of(nt_xent_views, lambda loss, a, b, t: loss(*reference.many_views(a, b), temperature=t))
def nt_xent_views_reference(
    views: Sequence[Tensor],
    local: Sequence[Tensor] = (),
    temperature: reference.Number = 1.0,
    ids: reference.Ids = None,
    without_positive: bool = False,
) -> Tensor:
    """Chen et al. 2020, eq. 1, its mean over the other views of the sample; local views are queries only.

    Without the positive it is Yeh et al. 2022, eq. 6, of each pair.
    """
    ids = torch.arange(len(views[0])) if ids is None else ids
    rows = []
    for own, z in [*enumerate(views), *((None, z) for z in local)]:
        for i in range(len(z)):
            negatives = torch.cat([reference.cosine(z[i], other[ids != ids[i]]) for other in views]) / temperature
            positives = [reference.cosine(z[i], other[i]) / temperature for n, other in enumerate(views) if n != own]
            if without_positive:
                rows.append(
                    torch.stack([negatives.logsumexp(0) - s if len(negatives) else 0 * s for s in positives]).mean()
                )
            else:
                rows.append(torch.stack([reference.cross_entropy(s, negatives) for s in positives]).mean())
    return torch.stack(rows)


@reference.definition_of(decoupled)
def decoupled_reference(z1: Tensor, z2: Tensor, temperature: reference.Number, ids: reference.Ids = None) -> Tensor:
    """Yeh et al. 2022, eq. 6; 0 without negatives."""
    rows = []
    for positive, negatives in reference.two_views(z1, z2, ids):
        row = (negatives / temperature).logsumexp(0) - positive / temperature
        rows.append(row if len(negatives) else z1.new_zeros(()))
    return torch.stack(rows)


@reference.definition_of(symmetric_info_nce)
def symmetric_info_nce_reference(
    z1: Tensor, z2: Tensor, temperature: reference.Number, ids: reference.Ids = None
) -> Tensor:
    """Radford et al. 2021, fig. 3."""
    return (info_nce_reference(z1, z2, None, temperature, ids) + info_nce_reference(z2, z1, None, temperature, ids)) / 2
