"""Losses that treat negatives differently: some are false negatives, some are harder than others."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nearfar.losses import reference
from nearfar.losses.arguments import (
    Reduction,
    check_at_least,
    check_pair,
    check_rows,
    inverse_temperature,
    l2_normalize,
    reduce_loss,
    softplus,
)
from nearfar.losses.engine.guide import Guide
from nearfar.losses.engine.similarity import count_negatives, paired_similarity, similarity_logsumexp
from nearfar.losses.engine.stacked_views import two_views
from nearfar.losses.engine.top_k import top_k_similarity
from nearfar.losses.info_nce import ids_of_queries_and_keys, info_nce_reference


def debiased(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: float | Tensor,
    positive_prior: float,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """NT-Xent with the expected contribution of false negatives subtracted from the sum over the negatives.

    Args:
        z1, z2, temperature, ids, reduction: as for `nt_xent`.
        positive_prior: the paper's τ⁺, the probability that a negative is of the query's class: 0.1 for ten classes.

    Returns:
        In nats: a scalar, or (2B,) for "none". The loss of a view without negatives is 0.

    Reference: Chuang et al. 2020, eq. 8 with one positive, https://arxiv.org/abs/2007.00224
    """
    return hard_negative(
        z1, z2, temperature=temperature, beta=0.0, positive_prior=positive_prior, ids=ids, reduction=reduction
    )


def hard_negative(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: float | Tensor,
    beta: float,
    positive_prior: float = 0.0,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """NT-Xent with each negative weighted by `e^{β s / τ}`, and debiased: for both views, in linear memory.

    Args:
        z1, z2, temperature, ids, reduction: as for `nt_xent`.
        beta: concentration on hard negatives; 0 weighs all equally. It multiplies s / τ, as in the authors' code.
        positive_prior: the paper's τ⁺, the probability that a negative is of the query's class.

    Returns:
        In nats: a scalar, or (2B,) for "none". The loss of a view without negatives is 0.

    Reference: Robinson et al. 2021, eq. 4 and appendix D, https://arxiv.org/abs/2010.04592
    """
    check_at_least("beta", beta, 0.0)
    check_at_least("positive_prior", positive_prior, 0.0, below=1.0)
    z, ids, scale, positive = two_views(z1, z2, temperature, ids)
    log_count = count_negatives(ids, ids).to(z).log()  # (2B,)
    negatives = similarity_logsumexp(z, z, scale=(1 + beta) * scale, query_ids=ids, key_ids=ids, max_norm=1.0)  # (2B,)
    if beta > 0:
        weights = similarity_logsumexp(z, z, scale=beta * scale, query_ids=ids, key_ids=ids, max_norm=1.0)  # (2B,)
        negatives = torch.where(log_count.isneginf(), -torch.inf, negatives - weights + log_count)
    negatives = _without_false_negatives(negatives, positive, log_count, scale, positive_prior)
    return reduce_loss(softplus(negatives - positive), reduction)


def top_k_info_nce(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: float | Tensor,
    k: int,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """NT-Xent against only the k most similar negatives of each view.

    Args:
        z1, z2, temperature, ids, reduction: as for `nt_xent`.
        k: negatives of each view, at most the fewest that any view has; 2B - 2 is `nt_xent`.

    Returns:
        In nats: a scalar, or (2B,) for "none".
    """
    z, ids, scale, positive = two_views(z1, z2, temperature, ids)
    hardest, _ = top_k_similarity(z, z, k=k, query_ids=ids, key_ids=ids)  # (2B, k)
    return reduce_loss(softplus((scale * hardest).logsumexp(1) - positive), reduction)


def guided_info_nce(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    *,
    guides: Sequence[Tensor],
    temperature: float | Tensor,
    margin: float,
    relative_margin: float = 0.0,
    ids: Tensor | None = None,
    negative_ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """InfoNCE without the negatives that a guide finds nearer to the query than its positive: false ones, probably.

    A negative is left out if its cosine in the guide's space is above `s - margin - relative_margin · |s|`, s that of
    the positive. The guide's similarities are computed tile by tile, too: memory is linear in the rows.

    Args:
        query, positive, negatives, temperature, ids, negative_ids, reduction: as for `info_nce`, by cosine.
        guides: embeddings of another encoder: (B, G) of the queries, (B, G) of the positives and, with negatives,
            (M, G) of these; normalized and detached here.
        margin, relative_margin: at least 0.

    Returns:
        In nats: a scalar, or (B,) for "none". The loss of a query without negatives is 0.

    Reference: Solatorio 2024, section 3.2, https://arxiv.org/abs/2402.16829, where other queries, and the positives
    for each other, are candidates, too; here they are not (contrast_anchors and contrast_positives of
    sentence-transformers' GISTEmbedLoss).
    """
    check_pair("query", query, "positive", positive)
    check_at_least("margin", margin, 0.0)
    check_at_least("relative_margin", relative_margin, 0.0)
    query_ids, key_ids = ids_of_queries_and_keys(query, negatives, ids, negative_ids)
    by_guide = _guide_of(guides, query, negatives, margin, relative_margin)
    query, positive = l2_normalize(query), l2_normalize(positive)
    keys = positive if negatives is None else l2_normalize(negatives)
    scale = inverse_temperature(temperature, query)
    logit = scale * paired_similarity(query, positive)  # (B,)
    logsumexp = similarity_logsumexp(
        query, keys, scale=scale, query_ids=query_ids, key_ids=key_ids, guide=by_guide
    )  # (B,)
    return reduce_loss(softplus(logsumexp - logit), reduction)


def _guide_of(
    guides: Sequence[Tensor], query: Tensor, negatives: Tensor | None, margin: float, relative_margin: float
) -> Guide:
    expected = [query.shape[0], query.shape[0]] + ([] if negatives is None else [negatives.shape[0]])
    for x in guides:
        check_rows("guides", x)
    if [x.shape[0] for x in guides] != expected:
        raise ValueError(
            f"guides have {[x.shape[0] for x in guides]} rows, expected {expected}: of the embeddings they guide"
        )
    rows = [l2_normalize(x.detach()) for x in guides]
    own = paired_similarity(rows[0], rows[1])  # (B,)
    return Guide(rows[0], rows[-1], own - margin - relative_margin * own.abs())


def _without_false_negatives(
    negatives: Tensor, positive: Tensor, log_count: Tensor, scale: float | Tensor, positive_prior: float
) -> Tensor:
    """`log max((e^negatives - N τ⁺ e^positive) / (1 - τ⁺), N e^{-1/τ})`; the floor is the sum of N opposite vectors."""
    if positive_prior == 0:
        return negatives
    floor = log_count - scale
    removed = positive + log_count + math.log(positive_prior) - negatives  # log of the fraction
    some_left = removed < 0
    removed = torch.where(some_left, removed, -1.0)  # a value with a finite gradient where the floor is used
    rest = negatives + (-torch.expm1(removed)).log() - math.log(1 - positive_prior)
    return torch.where(some_left & (rest > floor), rest, floor)


@reference.definition_of(debiased, lambda loss, a, b, t: loss(a, b, temperature=t, positive_prior=0.01))
def debiased_reference(
    z1: Tensor, z2: Tensor, temperature: reference.Number, positive_prior: float, ids: reference.Ids = None
) -> Tensor:
    """Chuang et al. 2020, eqs. 7 and 8 with one positive."""
    rows = []
    for positive, negatives in reference.two_views(z1, z2, ids):
        each = (negatives / temperature).exp()  # (M,)
        rows.append(_plain_correction(each.sum(), len(each), positive, temperature, positive_prior))
    return torch.stack(rows)


@reference.definition_of(hard_negative, lambda loss, a, b, t: loss(a, b, temperature=t, beta=0.5, positive_prior=0.01))
def hard_negative_reference(
    z1: Tensor,
    z2: Tensor,
    temperature: reference.Number,
    beta: float,
    positive_prior: float = 0.0,
    ids: reference.Ids = None,
) -> Tensor:
    """Robinson et al. 2021, eq. 4 as the authors' code has it: weights `negatives ** beta`, divided by their mean."""
    rows = []
    for positive, negatives in reference.two_views(z1, z2, ids):
        each = (negatives / temperature).exp()  # (M,)
        importance = (beta * each.log()).exp()
        total = (importance * each / importance.mean()).sum()
        rows.append(_plain_correction(total, len(each), positive, temperature, positive_prior))
    return torch.stack(rows)


def _plain_correction(
    total: Tensor, count: int, positive: Tensor, temperature: reference.Number, positive_prior: float
) -> Tensor:
    """The loss, with the expected part of positives taken out of the sum over the negatives, down to a floor."""
    exp_positive = (positive / temperature).exp()
    estimate = (total - count * positive_prior * exp_positive) / (1 - positive_prior)
    floor = count * (-1 / torch.as_tensor(temperature).to(total)).exp()
    return torch.log1p((estimate if estimate > floor else floor) / exp_positive)


@reference.definition_of(top_k_info_nce, lambda loss, a, b, t: loss(a, b, temperature=t, k=8))
def top_k_info_nce_reference(
    z1: Tensor, z2: Tensor, temperature: reference.Number, k: int, ids: reference.Ids = None
) -> Tensor:
    """NT-Xent with the k most similar negatives of each view."""
    rows = []
    for positive, negatives in reference.two_views(z1, z2, ids):
        hardest = negatives.sort(descending=True).values[:k]
        rows.append(reference.cross_entropy(positive / temperature, hardest / temperature))
    return torch.stack(rows)


def _call_guided(loss: reference.Function, z1: Tensor, z2: Tensor, temperature: Tensor) -> Tensor:
    guides = z1.detach().flip(1), z1.detach().flip(1) + z2.detach()  # similar, and not the same as the embeddings
    return loss(z1, z2, guides=guides, temperature=temperature, margin=0.05, relative_margin=0.1)


@reference.definition_of(guided_info_nce, _call_guided)
def guided_info_nce_reference(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    *,
    guides: Sequence[Tensor],
    temperature: reference.Number,
    margin: float,
    relative_margin: float = 0.0,
    ids: reference.Ids = None,
    negative_ids: reference.Ids = None,
) -> Tensor:
    """Solatorio 2024, section 3.2, of the candidates of `info_nce`."""
    if negatives is None:
        ids = negative_ids = torch.arange(len(query)) if ids is None else ids
    keys, guide_keys = (positive, guides[1]) if negatives is None else (negatives, guides[2])
    rows = []
    for i in range(len(query)):
        own = float(reference.cosine(guides[0][i], guides[1][i]))
        limit = own - margin - relative_margin * abs(own)
        others = reference.other_ids(negative_ids, ids, i, len(keys))
        kept = [j for j in range(len(keys)) if others[j] and reference.cosine(guides[0][i], guide_keys[j]) <= limit]
        rows.append(info_nce_reference(query[i : i + 1], positive[i : i + 1], keys[kept], temperature)[0])
    return torch.stack(rows)
