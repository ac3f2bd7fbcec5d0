"""Losses without negatives: one network's output must predict another's."""

import torch
from torch import Tensor

from nearfar.losses import reference
from nearfar.losses.arguments import Reduction, check_pair, l2_normalize, reduce_loss
from nearfar.losses.engine.similarity import paired_similarity


def cosine_regression(prediction: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """BYOL's and SimSiam's loss: `|p̄ - z̄|² = 2 - 2 cos(p, z)`, the target detached.

    Args:
        prediction: (B, D), the predictor's output; normalized here.
        target: (B, D), the other network's projection; normalized and detached here.
        reduction: "mean", "sum" or "none" over the B rows.

    Returns:
        Between 0 and 4: a scalar, or (B,) for "none". SimSiam's `-cos` is half of it, less 1.

    Reference: Grill et al. 2020, eq. 2, https://arxiv.org/abs/2006.07733; Chen & He 2021, eq. 1,
    https://arxiv.org/abs/2011.10566
    """
    check_pair("prediction", prediction, "target", target)
    return reduce_loss(2 - 2 * paired_similarity(l2_normalize(prediction), l2_normalize(target.detach())), reduction)


@reference.definition_of(cosine_regression, reference.views_alone)
def cosine_regression_reference(prediction: Tensor, target: Tensor) -> Tensor:
    """Grill et al. 2020, eq. 2: the squared distance of the normalized rows, the target held fixed."""
    rows = []
    for p, z in zip(prediction, target.detach(), strict=True):
        rows.append(-reference.euclidean(p / reference.dot(p, p).sqrt(), z / reference.dot(z, z).sqrt()))
    return torch.stack(rows)
