"""Losses that look twice at their negatives: some are positives in disguise, some are harder than others."""

import torch
from torch import Tensor

from nearfar.losses.arguments import (
    Reduction,
    check_at_least,
    check_reduction,
    inverse_temperature,
    reduced,
    softplus,
)
from nearfar.losses.engine.similarity import count_negatives, similarity_logsumexp, stack_views, twin_similarity
from nearfar.losses.engine.top_k import top_k_similarity


def debiased(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: float | Tensor,
    positive_prior: float,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """NT-Xent with the share of negatives that are positives in disguise taken out of the sum.

    Args:
        z1, z2: (B, D), two views of the same B samples; normalised here.
        temperature: divides the cosine similarities; a tensor is learned.
        positive_prior: the paper's τ⁺, the chance that a negative is of the query's class: 0.1 for ten classes.
        ids: (B,), rows with equal ids are never negatives of each other.
        reduction: "mean", "sum" or "none" over the 2B views.

    Returns:
        In nats: a scalar, or (2B,) for "none". A view without negatives costs 0.

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
        z1, z2: (B, D), two views of the same B samples; normalised here.
        temperature: divides the cosine similarities; a tensor is learned.
        beta: the concentration on hard negatives; 0 weighs all alike. It multiplies s / τ, as in the authors' code.
        positive_prior: the paper's τ⁺, the chance that a negative is of the query's class.
        ids: (B,), rows with equal ids are never negatives of each other.
        reduction: "mean", "sum" or "none" over the 2B views.

    Returns:
        In nats: a scalar, or (2B,) for "none". A view without negatives costs 0.

    Reference: Robinson et al. 2021, eq. 4 and appendix D, https://arxiv.org/abs/2010.04592
    """
    check_at_least("beta", beta, 0.0)
    check_at_least("positive_prior", positive_prior, 0.0, below=1.0)
    check_reduction(reduction)
    z, ids = stack_views(z1, z2, ids)  # (2B, D), (2B,)
    scale = inverse_temperature(temperature, z)
    near = scale * twin_similarity(z)  # (2B,)
    log_count = count_negatives(ids, ids).to(z).log()  # (2B,)
    far = similarity_logsumexp(z, z, scale=(1 + beta) * scale, query_ids=ids, key_ids=ids)  # (2B,)
    if beta > 0:
        weights = similarity_logsumexp(z, z, scale=beta * scale, query_ids=ids, key_ids=ids)  # (2B,)
        far = torch.where(log_count.isneginf(), -torch.inf, far - weights + log_count)
    return reduced(softplus(_without_false_negatives(far, near, log_count, scale, positive_prior) - near), reduction)


def top_k_info_nce(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: float | Tensor,
    k: int,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """NT-Xent against the k most similar negatives alone, mined for both views.

    Args:
        z1, z2: (B, D), two views of the same B samples; normalised here.
        temperature: divides the cosine similarities; a tensor is learned.
        k: negatives for each view, at most as many as the poorest view has; 2B - 2 is `nt_xent`.
        ids: (B,), rows with equal ids are never negatives of each other.
        reduction: "mean", "sum" or "none" over the 2B views.

    Returns:
        In nats: a scalar, or (2B,) for "none".
    """
    check_reduction(reduction)
    z, ids = stack_views(z1, z2, ids)  # (2B, D), (2B,)
    scale = inverse_temperature(temperature, z)
    near = scale * twin_similarity(z)  # (2B,)
    hardest, _ = top_k_similarity(z, z, k=k, query_ids=ids, key_ids=ids)  # (2B, k)
    return reduced(softplus((scale * hardest).logsumexp(1) - near), reduction)


def _without_false_negatives(
    far: Tensor, near: Tensor, log_count: Tensor, scale: Tensor, positive_prior: float
) -> Tensor:
    """`log max((e^far - N τ⁺ e^near) / (1 - τ⁺), N e^{-1/τ})`, the floor being what N opposite vectors would sum to."""
    if positive_prior == 0:
        return far
    floor = log_count - scale
    share = near + log_count + near.new_tensor(positive_prior).log() - far  # log of the part taken out
    partly = share < 0
    share = torch.where(partly, share, -1.0)  # elsewhere nothing is left; keeps the gradient finite
    rest = far + (-torch.expm1(share)).log() - near.new_tensor(1 - positive_prior).log()
    return torch.where(partly & (rest > floor), rest, floor)
