"""A sigmoid for each pair in place of the softmax: SigLIP, and the sum that it needs."""

import torch
from torch import Tensor

from nearfar.losses import reference
from nearfar.losses.arguments import (
    Reduction,
    as_factor,
    as_scalar,
    check_finite,
    check_pair,
    check_positive,
    check_query_and_keys,
    l2_normalize,
    narrow_type,
    reduce_loss,
    softplus,
    upcast_half,
)
from nearfar.losses.engine.autograd import SumInputs
from nearfar.losses.engine.backends import current_backend
from nearfar.losses.engine.log_sums import Terms
from nearfar.losses.engine.operators import apply_sums
from nearfar.losses.engine.similarity import paired_similarity, sample_ids
from nearfar.losses.engine.small_pairs import small_sigmoid_rows


def sigmoid_pairs(
    z1: Tensor,
    z2: Tensor,
    *,
    logit_scale: float | Tensor,
    logit_bias: float | Tensor,
    ids: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """SigLIP's loss: logistic regression of each pair, with one positive and B - 1 negatives for each row.

    Args:
        z1, z2: (B, D), for instance images and their captions; normalized here.
        logit_scale: multiplies the cosine similarities (10 at first in the paper); may be a tensor that is learned.
        logit_bias: is added (-10 at first in the paper); may be a tensor that is learned.
        ids: (B,), rows with equal ids are never negatives of each other.
        reduction: "mean", "sum" or "none" over the B rows.

    Returns:
        In nats: a scalar, or (B,) for "none": the sum over row i of z1 against all of z2.

    Reference: Zhai et al. 2023, eq. 2 and algorithm 1, https://arxiv.org/abs/2303.15343
    """
    check_pair("z1", z1, "z2", z2)
    check_positive("logit_scale", logit_scale)
    check_finite("logit_bias", logit_bias)
    of_sample = sample_ids(z1, ids)
    if (small := small_sigmoid_rows(z1, z2, logit_scale, logit_bias, ids)) is not None:
        return reduce_loss(small, reduction)
    z1, z2 = l2_normalize(z1), l2_normalize(z2)
    scale, bias = as_factor(logit_scale, z1), as_factor(logit_bias, z1)
    positive = softplus(-(scale * paired_similarity(z1, z2) + bias))  # (B,)
    negatives = similarity_softplus_sum(z1, z2, scale=scale, bias=bias, query_ids=of_sample, key_ids=of_sample)  # (B,)
    return reduce_loss(positive + negatives, reduction)


def similarity_softplus_sum(
    query: Tensor,
    keys: Tensor,
    *,
    scale: float | Tensor,
    bias: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> Tensor:
    """`Σ_{j: key_ids[j] != query_ids[i]} log(1 + exp(scale · <query_i, keys_j> + bias))`, in memory linear in B + M.

    Args:
        query: (B, D); not normalized here.
        keys: (M, D).
        scale, bias: numbers, or tensors that are learned.
        query_ids, key_ids: (B,), (M,) integers; pairs of equal ids are excluded. None: no pair is.

    Returns:
        (B,), float32 for half-precision input.
    """
    check_query_and_keys(query, keys, query_ids, key_ids)
    check_finite("scale", scale)
    check_finite("bias", bias)
    q, k = upcast_half(query), upcast_half(keys)
    if (backend := current_backend()) is not None:
        return backend.softplus_sum(q, k, as_scalar(scale, q), as_scalar(bias, q), query_ids, key_ids)
    inputs = SumInputs(q, k, as_factor(scale, q), as_factor(bias, q), query_ids, key_ids)
    return apply_sums("softplus_sums", Terms(narrow=narrow_type(query, keys)), inputs)[0]


@reference.definition_of(sigmoid_pairs, lambda loss, a, b, t: loss(a, b, logit_scale=1 / t, logit_bias=-10.0))
def sigmoid_pairs_reference(
    z1: Tensor, z2: Tensor, logit_scale: reference.Number, logit_bias: reference.Number, ids: reference.Ids = None
) -> Tensor:
    """Zhai et al. 2023, eq. 2: Σ_j log(1 + e^{-y_ij (t s_ij + b)}), y = 1 on the diagonal and -1 elsewhere."""
    ids = torch.arange(len(z1)) if ids is None else ids
    rows = []
    for i in range(len(z1)):
        logits = logit_scale * reference.cosine(z1[i], z2) + logit_bias  # (B,)
        rows.append(reference.softplus(-logits[i]) + reference.softplus(logits[ids != ids[i]]).sum())
    return torch.stack(rows)
