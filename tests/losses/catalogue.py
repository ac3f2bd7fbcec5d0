"""The losses of two views and a temperature, in one signature, each beside its reference."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar import losses
from nearfar.losses.info_nce import (
    decoupled_reference,
    info_nce_reference,
    nt_xent_reference,
    nt_xent_views_reference,
    symmetric_info_nce_reference,
)
from nearfar.losses.negatives import debiased_reference, hard_negative_reference, top_k_info_nce_reference
from nearfar.losses.sigmoid import sigmoid_pairs_reference
from nearfar.losses.supervised import sup_con_reference
from tests.losses.agreement import Function, rows


class TwoViewLoss(NamedTuple):
    loss: Function  # of (z1, z2, temperature=, ids=, reduction=)
    reference: Function  # of (z1, z2, temperature, ids)
    stacked: bool = True  # one row for each of the 2B views, not for each of the B pairs
    cosine: bool = True
    fewest: int = 1  # samples it needs, two of which may share an id


def _stacked_sup_con(
    z1: Tensor, z2: Tensor, *, temperature: float | Tensor, ids: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    ids = torch.arange(len(z1)) if ids is None else ids
    return losses.sup_con(torch.cat([z1, z2]), torch.cat([ids, ids]), temperature=temperature, reduction=reduction)


def _stacked_sup_con_reference(z1: Tensor, z2: Tensor, temperature: float | Tensor, ids: Tensor | None) -> Tensor:
    ids = torch.arange(len(z1)) if ids is None else ids
    return sup_con_reference(torch.cat([z1, z2]), torch.cat([ids, ids]), temperature)


def _sigmoid(z1: Tensor, z2: Tensor, *, temperature: float | Tensor, **options: object) -> Tensor:
    return losses.sigmoid_pairs(z1, z2, logit_scale=1 / temperature, logit_bias=-1.5, **options)


def _sigmoid_reference(z1: Tensor, z2: Tensor, temperature: float | Tensor, ids: Tensor | None) -> Tensor:
    return sigmoid_pairs_reference(z1, z2, 1 / temperature, -1.5, ids)


def _info_nce(similarity: str) -> TwoViewLoss:
    return TwoViewLoss(
        partial(losses.info_nce, similarity=similarity),
        lambda z1, z2, t, ids: info_nce_reference(z1, z2, None, t, ids, similarity=similarity),
        stacked=False,
        cosine=similarity == "cosine",
    )


def _debiased(prior: float) -> TwoViewLoss:
    return TwoViewLoss(
        partial(losses.debiased, positive_prior=prior),
        lambda z1, z2, t, ids: debiased_reference(z1, z2, t, prior, ids),
    )


def _hard_negative(beta: float, prior: float) -> TwoViewLoss:
    return TwoViewLoss(
        partial(losses.hard_negative, beta=beta, positive_prior=prior),
        lambda z1, z2, t, ids: hard_negative_reference(z1, z2, t, beta, prior, ids),
    )


TWO_VIEW_LOSSES = {
    "info_nce": _info_nce("cosine"),
    "info_nce, dot": _info_nce("dot"),
    "info_nce, euclidean": _info_nce("euclidean"),
    "nt_xent": TwoViewLoss(losses.nt_xent, nt_xent_reference),
    "nt_xent_views": TwoViewLoss(
        lambda z1, z2, **options: losses.nt_xent_views([z1, z2], **options),
        lambda z1, z2, t, ids: nt_xent_views_reference([z1, z2], (), t, ids),
    ),
    "decoupled": TwoViewLoss(losses.decoupled, decoupled_reference),
    "symmetric_info_nce": TwoViewLoss(losses.symmetric_info_nce, symmetric_info_nce_reference, stacked=False),
    "debiased, prior 0": _debiased(0.0),
    "debiased, prior 0.1": _debiased(0.1),
    "debiased, prior 0.6": _debiased(0.6),
    "hard_negative, beta 0": _hard_negative(0.0, 0.0),
    "hard_negative, beta 1": _hard_negative(1.0, 0.0),
    "hard_negative, beta 0.5, prior 0.1": _hard_negative(0.5, 0.1),
    "top_k_info_nce": TwoViewLoss(
        partial(losses.top_k_info_nce, k=2),
        lambda z1, z2, t, ids: top_k_info_nce_reference(z1, z2, t, 2, ids),
        fewest=3,
    ),
    "sup_con": TwoViewLoss(_stacked_sup_con, _stacked_sup_con_reference),
    "sigmoid_pairs": TwoViewLoss(_sigmoid, _sigmoid_reference, stacked=False),
}

SPARE = rows(7, 3, seed=1)

# The other losses with rows: of (z1, z2, reduction=), three features wide.
ROW_LOSSES: dict[str, Function] = {
    "info_nce with a queue": lambda z1, z2, **options: losses.info_nce(
        z1, z2, SPARE.to(z1), temperature=0.2, **options
    ),
    "nce, shared noise": lambda z1, z2, **options: losses.nce(
        z1, z2, SPARE.to(z1), temperature=0.2, bank_size=50, **options
    ),
    "nce, noise per query": lambda z1, z2, **options: losses.nce(
        z1, z2, SPARE.to(z1).expand(len(z1), -1, -1), temperature=0.2, bank_size=50, **options
    ),
    "triplet": lambda z1, z2, **options: losses.triplet(z1, z2, z1.flip(0), margin=0.5, **options),
    "triplet, cosine": lambda z1, z2, **options: losses.triplet(
        z1, z2, z1.flip(0), margin=0.5, distance="cosine", **options
    ),
    "cosine_regression": losses.cosine_regression,
}


def _batch_triplet(mining: str, distance: str) -> Function:
    return lambda z1, z2: losses.batch_triplet(
        torch.cat([z1, z2]), torch.arange(len(z1)).repeat(2), margin=0.5, mining=mining, distance=distance
    )


# The losses without rows: of (z1, z2).
WHOLE_LOSSES: dict[str, Function] = {
    "barlow_twins": losses.barlow_twins,
    "vicreg": losses.vicreg,
    **{
        f"batch_triplet, {mining}, {distance}": _batch_triplet(mining, distance)
        for mining in ("hard", "semi-hard", "all")
        for distance in ("euclidean", "cosine")
    },
}

EVERY_LOSS: dict[str, Function] = {  # of (z1, z2)
    **{name: partial(case.loss, temperature=0.2) for name, case in TWO_VIEW_LOSSES.items()},
    **ROW_LOSSES,
    **WHOLE_LOSSES,
}


def merged_ids(batch: int) -> Tensor:
    """Falling ids, so that id order is not row order; the last sample's equal to the first's."""
    ids = -5 * torch.arange(batch)
    ids[-1] = ids[0]
    return ids
