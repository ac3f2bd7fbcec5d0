"""The loss of each row against its negatives: `log(1 + Σ e^negatives / e^positive)`, softplus of the log-odds.

NT-Xent compares all views with each other, InfoNCE queries with keys, and CLIP both ways.
"""

import torch
from torch import Tensor

from nearfar.losses.arguments import Reduction, inverse_temperature, l2_normalize, reduce_loss, softplus, upcast_half
from nearfar.losses.engine.similarity import (
    positive_and_logsumexp,
    positive_and_logsumexp_two_way,
    sample_ids,
    similarity_logsumexp,
)
from nearfar.losses.engine.small_pairs import small_loss
from nearfar.losses.engine.stacked_views import two_views


def loss_of_views(
    z1: Tensor,
    z2: Tensor,
    temperature: float | Tensor,
    ids: Tensor | None,
    reduction: Reduction,
    *,
    without_positive: bool = False,
) -> Tensor:
    """Each of two views (B, D), normalized here, among all views of other samples; those of z1 first.

    Args:
        without_positive: the log-odds themselves: the positive is not in the denominator. 0 without negatives.
    """
    sample_ids(z1, ids)  # checks them
    small = small_loss(z1, z2, temperature, ids, "stacked", reduction, soft=not without_positive)
    if small is not None:
        return small
    z, both_ids, scale, positive = two_views(z1, z2, temperature, ids)
    negatives = similarity_logsumexp(z, z, scale=scale, query_ids=both_ids, key_ids=both_ids, max_norm=1.0)  # (2B,)
    of_row = without_negatives_zero if without_positive else softplus
    return reduce_loss(of_row(negatives - positive), reduction)


def loss_of_pairs(
    query: Tensor,
    keys: Tensor,
    temperature: float | Tensor,
    ids: Tensor | None,
    reduction: Reduction,
    *,
    normalize: bool = True,
) -> Tensor:
    """Each query (B, D) among the keys of other samples; row i of the keys (B, D) is its positive."""
    sample = sample_ids(query, ids)
    small = small_loss(query, keys, temperature, ids, "one way", reduction, normalize=normalize)
    if small is not None:
        return small
    prepare, max_norm = (l2_normalize, 1.0) if normalize else (upcast_half, None)
    query, keys = prepare(query), prepare(keys)
    scale = inverse_temperature(temperature, query)
    positive, rows = positive_and_logsumexp(query, keys, scale=scale, ids=sample, max_norm=max_norm)
    return reduce_loss(softplus(rows - positive), reduction)


def loss_both_ways(
    z1: Tensor, z2: Tensor, temperature: float | Tensor, ids: Tensor | None, reduction: Reduction
) -> Tensor:
    """The mean of `loss_of_pairs` of z1 among z2 and of z2 among z1, from the same products."""
    sample = sample_ids(z1, ids)
    small = small_loss(z1, z2, temperature, ids, "both ways", reduction)
    if small is not None:
        return small
    z1, z2 = l2_normalize(z1), l2_normalize(z2)
    scale = inverse_temperature(temperature, z1)
    positive, rows, columns = positive_and_logsumexp_two_way(z1, z2, scale=scale, ids=sample, max_norm=1.0)
    return reduce_loss((softplus(rows - positive) + softplus(columns - positive)) / 2, reduction)


def without_negatives_zero(log_odds: Tensor) -> Tensor:
    """Log-odds, with 0 for rows without negatives."""
    return torch.where(log_odds.isneginf(), 0.0, log_odds)
