"""Contrast with labels: everything of the same class is a positive."""

import torch
from torch import Tensor

from nearfar.losses.arguments import (
    Reduction,
    check_ids,
    check_reduction,
    check_rows,
    inverse_temperature,
    softplus,
    unit,
)
from nearfar.losses.engine.similarity import paired_similarity, sample_ids, similarity_logsumexp


def sup_con(z: Tensor, labels: Tensor, *, temperature: float | Tensor, reduction: Reduction = "mean") -> Tensor:
    """Supervised contrastive loss: each row must find all rows of its class among the other N - 1.

    Args:
        z: (N, D), any number of views of any samples; normalised here.
        labels: (N,) integers; every view of a sample carries its label.
        temperature: divides the cosine similarities; a tensor is learned.
        reduction: "mean" or "sum" over the rows that have a positive, or "none" over all N.

    Returns:
        In nats: a scalar, or (N,) for "none". A row alone in its class costs 0 and is no part of the mean.

    Reference: Khosla et al. 2020, eq. 2 (the sum outside the logarithm), https://arxiv.org/abs/2004.11362

    >>> z, right, wrong = torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> bool(sup_con(z, right, temperature=0.1) < sup_con(z, wrong, temperature=0.1))
    True
    """
    check_rows("z", z)
    check_ids("labels", labels, len(z), z)
    check_reduction(reduction)
    z = unit(z)
    scale = inverse_temperature(temperature, z)
    _, classes, sizes = labels.unique(return_inverse=True, return_counts=True)
    class_sum = z.new_zeros(len(sizes), z.shape[1]).index_add(0, classes, z)  # (C, D)
    positives = (sizes[classes] - 1).to(z)  # (N,)
    near = paired_similarity(z, class_sum[classes] - z) / positives.clamp(min=1)  # (N,), mean over the positives
    itself = len(sizes) + sample_ids(z, None)  # (N,), none of them a class
    left_out = torch.where(positives == 1, classes, itself)  # (N,)
    others = similarity_logsumexp(z, z, scale=scale, query_ids=left_out, key_ids=left_out)  # (N,)
    loss = mean_over_positives(others, scale * near, positives)
    if reduction == "none":
        return loss
    return loss.sum() / (positives > 0).sum().clamp(min=1) if reduction == "mean" else loss.sum()


def mean_over_positives(others: Tensor, near: Tensor, positives: Tensor) -> Tensor:
    """(N,), SupCon's loss of each row; 0 without a positive.

    A row with one positive may cost next to nothing, of which the difference of two logits leaves rounding alone. A row
    with P of them costs log P or more.

    Args:
        others: (N,), log-sum-exp of what a row is compared with; with one positive, of the negatives alone.
        near: (N,), mean over the positives.
        positives: (N,), how many there are.
    """
    loss = torch.where(positives == 1, softplus(others - near), others - near)
    return torch.where(positives > 0, loss, 0.0)
