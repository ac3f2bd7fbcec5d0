"""Contrast with labels: all rows of the same class are positives."""

import torch
from torch import Tensor

from nearfar.losses import reference
from nearfar.losses.arguments import (
    Reduction,
    check_ids,
    check_rows,
    inverse_temperature,
    l2_normalize,
    reduce_loss,
    softplus,
)
from nearfar.losses.engine.similarity import paired_similarity, sample_ids, similarity_logsumexp


def sup_con(z: Tensor, labels: Tensor, *, temperature: float | Tensor, reduction: Reduction = "mean") -> Tensor:
    """Supervised contrastive loss: each row must find all rows of its class among the other N - 1.

    Args:
        z: (N, D), any number of views of any samples; normalized here.
        labels: (N,) integers; all views of a sample have its label.
        temperature: divides the cosine similarities; may be a tensor that is learned.
        reduction: "mean" or "sum" over the rows that have a positive, or "none" over all N.

    Returns:
        In nats: a scalar, or (N,) for "none". A row alone in its class has loss 0 and is not counted in the mean.

    Reference: Khosla et al. 2020, eq. 2 (the sum outside the logarithm), https://arxiv.org/abs/2004.11362

    >>> z, right, wrong = torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> bool(sup_con(z, right, temperature=0.1) < sup_con(z, wrong, temperature=0.1))
    True
    """
    check_rows("z", z)
    check_ids("labels", labels, z.shape[0], z)
    z = l2_normalize(z)
    scale = inverse_temperature(temperature, z)
    classes = number_classes(labels)
    sizes = torch.zeros_like(classes).index_add(0, classes, torch.ones_like(classes))  # (N,), 0 beyond the last class
    class_sum = torch.zeros_like(z).index_add(0, classes, z)  # (N, D)
    positives = (sizes[classes] - 1).to(z)  # (N,)
    positive = paired_similarity(z, class_sum[classes] - z) / positives.clamp(min=1)  # (N,), mean over the positives
    only_itself = sizes.shape[0] + sample_ids(z, None)  # (N,), ids that are no class
    excluded = torch.where(positives == 1, classes, only_itself)  # (N,)
    logsumexp = similarity_logsumexp(z, z, scale=scale, query_ids=excluded, key_ids=excluded, max_norm=1.0)  # (N,)
    loss = mean_over_positives(logsumexp, scale * positive, positives)
    return reduce_loss(loss, reduction, (positives > 0).sum().clamp(min=1))


def number_classes(labels: Tensor) -> Tensor:
    """(N,), the classes numbered from 0 in their order: the inverse of `unique`, which would wait for the device."""
    ordered, order = labels.long().sort()
    number = (ordered != ordered.roll(1)).long().index_fill(0, order.new_zeros(1), 0).cumsum(0)
    return torch.empty_like(number).index_copy(0, order, number)


def mean_over_positives(logsumexp: Tensor, positive: Tensor, positives: Tensor) -> Tensor:
    """(N,), SupCon's loss of each row; 0 without a positive.

    The loss of a row with one positive may be tiny, so it is computed by softplus: the difference of two logits would
    be rounding error. A row with P positives has a loss of log P or more.

    Args:
        logsumexp: (N,), over all that a row is compared with; with one positive, over the negatives only.
        positive: (N,), mean logit of the positives.
        positives: (N,), how many there are.
    """
    loss = torch.where(positives == 1, softplus(logsumexp - positive), logsumexp - positive)
    return torch.where(positives > 0, loss, 0.0)


@reference.definition_of(sup_con, lambda loss, a, b, t: loss(*reference.labeled(a, b), temperature=t))
def sup_con_reference(z: Tensor, labels: Tensor, temperature: reference.Number) -> Tensor:
    """Khosla et al. 2020, eq. 2; NaN for a row alone in its class, which the paper leaves undefined."""
    rows = []
    for i in range(len(z)):
        others = torch.arange(len(z)) != i
        logits = reference.cosine(z[i], z[others]) / temperature  # (N - 1,)
        log_p = logits - logits.logsumexp(0)
        rows.append(-log_p[labels[others] == labels[i]].mean())
    return torch.stack(rows)
