"""Triplet losses: the negative must be farther away than the positive, by a margin."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.losses import reference
from nearfar.losses.arguments import (
    Reduction,
    check_at_least,
    check_choice,
    check_ids,
    check_pair,
    check_rows,
    l2_normalize,
    reduce_loss,
    upcast_half,
)
from nearfar.losses.engine.gathered import warn_if_not_gathered
from nearfar.losses.engine.precision import no_autocast
from nearfar.losses.engine.similarity import paired_similarity

Distance = Literal["euclidean", "cosine"]
Mining = Literal["hard", "semi-hard", "all"]


def triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float,
    distance: Distance = "euclidean",
    reduction: Reduction = "mean",
) -> Tensor:
    """`max(0, d(a, p) - d(a, n) + margin)`.

    Args:
        anchor, positive, negative: (B, D), one triplet per row.
        margin: by how much the negative must be farther.
        distance: "euclidean" (not squared, not normalized) or "cosine" (1 - cos).
        reduction: "mean", "sum" or "none" over the B triplets.

    Returns:
        A scalar, or (B,) for "none".

    Reference: Schroff et al. 2015, eq. 1 (there squared), https://arxiv.org/abs/1503.03832

    >>> x = torch.tensor([[0.0], [0.0]])
    >>> triplet(x, x + 1, x + 3, margin=1.5).item(), triplet(x, x + 1, x + 3, margin=3.0).item()
    (0.0, 1.0)
    """
    check_pair("anchor", anchor, "positive", positive)
    check_pair("anchor", anchor, "negative", negative)
    check_at_least("margin", margin, 0.0)
    check_choice("distance", distance, ("euclidean", "cosine"))
    if distance == "cosine":
        anchor, positive, negative = l2_normalize(anchor), l2_normalize(positive), l2_normalize(negative)
        near, far = 1 - paired_similarity(anchor, positive), 1 - paired_similarity(anchor, negative)
    else:
        anchor, positive, negative = upcast_half(anchor), upcast_half(positive), upcast_half(negative)
        near = torch.linalg.vector_norm(anchor - positive, dim=1)
        far = torch.linalg.vector_norm(anchor - negative, dim=1)
    return reduce_loss(F.relu(near - far + margin), reduction)


def batch_triplet(
    z: Tensor, labels: Tensor, *, margin: float, mining: Mining = "hard", distance: Distance = "euclidean"
) -> Tensor:
    """Triplet loss over the triplets that a labelled batch contains.

    Args:
        z: (N, D).
        labels: (N,) integers.
        margin: by how much the negative must be farther.
        mining: "hard": for each anchor its farthest positive and nearest negative, mean over the anchors;
            "semi-hard": for each anchor and positive the nearest negative beyond the positive or, where there is
            none, the farthest negative, mean over these pairs; "all": every triplet, mean over those with a
            loss above 0; by sorting, in N² log N steps, not N³.
        distance: "euclidean" or "cosine", as for `triplet`. Holds the N × N matrix. Only "cosine" has second
            derivatives.

    Returns:
        A scalar; 0 if the batch has no triplet.

    Reference: Hermans et al. 2017, eqs. 5 and 7 ("hard", "all"), https://arxiv.org/abs/1703.07737; Schroff et al.
    2015, section 3.2 ("semi-hard"), https://arxiv.org/abs/1503.03832
    """
    check_rows("z", z)
    check_ids("labels", labels, z.shape[0], z)
    warn_if_not_gathered(z)
    check_at_least("margin", margin, 0.0)
    check_choice("mining", mining, ("hard", "semi-hard", "all"))
    check_choice("distance", distance, ("euclidean", "cosine"))
    distances = _distances(z, distance)  # (N, N)
    negative = labels[:, None] != labels  # (N, N)
    positive = ~negative & ~torch.eye(z.shape[0], dtype=torch.bool, device=z.device)
    keep = positive.any(1) & negative.any(1)  # anchors with a triplet
    if mining == "hard":
        farthest = distances.masked_fill(~positive, 0.0).amax(1)
        nearest = distances.masked_fill(~negative, torch.inf).amin(1)
        return _mean_of(F.relu(farthest - nearest.masked_fill(~keep, 0.0) + margin), keep)
    positive = positive & keep[:, None]

    far = distances.masked_fill(~negative, torch.inf).sort(1).values  # to the negatives of each anchor, nearest first
    count = negative.sum(1, keepdim=True)
    if mining == "semi-hard":
        beyond = torch.searchsorted(far.detach(), distances.detach().contiguous(), right=True)
        chosen = far.gather(1, torch.minimum(beyond, (count - 1).clamp(min=0))).masked_fill(~positive, 0.0)
        return _mean_of(F.relu(distances - chosen + margin), positive)
    # The triplets of (a, p) with a loss above 0 are a prefix of the sorted negatives: count them, and use prefix sums.
    active = torch.searchsorted(far.detach(), (distances + margin).detach().contiguous())  # (A, N)
    active = torch.minimum(active, count)
    prefix = F.pad(far.masked_fill(far.isinf(), 0.0).cumsum(1), (1, 0))  # (A, N + 1)
    cost = active * (distances + margin) - prefix.gather(1, active)
    return _where(cost, positive).sum() / (active * positive).sum().clamp(min=1)


def _where(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask, 0.0)


def _mean_of(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the entries of the mask; 0 without any. Indexing by a mask would wait for the device."""
    return _where(x, mask).sum() / mask.sum().clamp(min=1)


def _distances(z: Tensor, distance: Distance) -> Tensor:
    if distance == "cosine":
        z = l2_normalize(z)
        with no_autocast(z):
            return 1 - z @ z.T
    return torch.cdist(upcast_half(z), upcast_half(z), compute_mode="donot_use_mm_for_euclid_dist")


def _plain_distance(x: Tensor, y: Tensor, distance: str) -> Tensor:
    return 1 - reference.cosine(x, y) if distance == "cosine" else (-reference.euclidean(x, y)).sqrt()


@reference.definition_of(triplet, lambda loss, a, b, t: loss(a, b, b.roll(1, 0), margin=6.0))
def triplet_reference(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, distance: str = "euclidean"
) -> Tensor:
    """Schroff et al. 2015, eq. 1, with the distance not squared."""
    rows = []
    for a, p, n in zip(anchor, positive, negative, strict=True):
        rows.append((_plain_distance(a, p, distance) - _plain_distance(a, n, distance) + margin).relu())
    return torch.stack(rows)


@reference.definition_of(batch_triplet, lambda loss, a, b, t: loss(*reference.labeled(a, b), margin=1.0))
def batch_triplet_reference(
    z: Tensor, labels: Tensor, margin: float, mining: str = "hard", distance: str = "euclidean"
) -> Tensor:
    """Hermans et al. 2017, eqs. 5 and 7; Schroff et al. 2015, section 3.2."""
    costs = []
    for a in range(len(z)):
        same = labels == labels[a]
        near = _plain_distance(z[a], z[same & (torch.arange(len(z)) != a)], distance)  # to each positive
        far = _plain_distance(z[a], z[~same], distance)  # to each negative
        if len(near) == 0 or len(far) == 0:
            continue
        if mining == "hard":
            costs.append((near.max() - far.min() + margin).relu())
        elif mining == "semi-hard":
            for d in near:
                beyond = far[far > d]
                costs.append((d - (beyond.min() if len(beyond) else far.max()) + margin).relu())
        else:
            every = (near[:, None] - far + margin).flatten()
            costs.extend(every[every > 0])
    return torch.stack(costs).mean() if costs else z.new_zeros(())
