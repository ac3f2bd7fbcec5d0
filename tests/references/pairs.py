"""Pairs judged one by one."""

import torch
from torch import Tensor

from tests.references.similarity import cosine, own_ids, softplus


def sigmoid_pairs(
    z1: Tensor, z2: Tensor, logit_scale: float | Tensor, logit_bias: float | Tensor, ids: Tensor | None = None
) -> Tensor:
    """Zhai et al. 2023, eq. 2: Σ_j log(1 + e^{-y_ij (t s_ij + b)}), y = 1 on the diagonal and -1 elsewhere."""
    of_row = own_ids(len(z1), ids)
    rows = []
    for i in range(len(z1)):
        total = z1.new_zeros(())
        for j in range(len(z2)):
            logit = logit_scale * cosine(z1[i], z2[j]) + logit_bias
            if i == j:
                total = total + softplus(-logit)
            elif of_row[i] != of_row[j]:
                total = total + softplus(logit)
        rows.append(total)
    return torch.stack(rows)


def cosine_regression(prediction: Tensor, target: Tensor) -> Tensor:
    """Grill et al. 2020, eq. 2: the squared distance of the normalised rows, the target held fixed."""
    rows = []
    for p, z in zip(prediction, target.detach(), strict=True):
        difference = p / p.square().sum().sqrt() - z / z.square().sum().sqrt()
        rows.append(difference.square().sum())
    return torch.stack(rows)
