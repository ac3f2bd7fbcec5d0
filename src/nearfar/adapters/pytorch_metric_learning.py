"""Losses of pytorch-metric-learning (2.9): `from nearfar.adapters.pytorch_metric_learning import NTXentLoss`.

They take (embeddings, labels, ref_emb=, ref_labels=), and go into its `SelfSupervisedLoss`, which asks for their names.
There, NT-Xent holds a matrix of positive pairs by negative pairs; here, memory is linear in rows and positive pairs.
Distances, reducers and regularizers other than a loss' own, and the pairs of a miner, are refused.

What may surprise in pytorch-metric-learning, and is the same here:

- Where `ref_labels` is the very tensor `labels`, row i of `ref_emb` is taken for row i of `embeddings` itself, and is
  no positive of it. For two views of the same samples give `labels.clone()`.
- The mean of `SupConLoss` and `TripletMarginLoss` is over what costs more than 0, so it may rise as more is learned.
- Without a negative, without a positive, or with no more than one of each, the loss is 0.

What is another: `NTXentLoss` ends there at 87 in float32, where the share of the positive falls below the least float
and its gradient vanishes; here it goes on. A row of zeros gets no gradient.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from nearfar.adapters.processes import refuse
from nearfar.losses import batch_triplet, similarity_logsumexp
from nearfar.losses.arguments import (
    check_alike,
    check_at_least,
    check_ids,
    check_rows,
    inverse_temperature,
    softplus,
    unit,
)
from nearfar.losses.similarity import count_negatives, paired_similarity

__all__ = ["NTXentLoss", "SupConLoss", "TripletMarginLoss"]


class _Loss(nn.Module):
    """What all of them take, and refuse."""

    def __init__(
        self,
        *,
        distance: Any = None,
        reducer: Any = None,
        embedding_regularizer: Any = None,
        embedding_reg_weight: float = 1,
        collect_stats: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (
            ("distance", distance),
            ("reducer", reducer),
            ("embedding_regularizer", embedding_regularizer),
        ):
            if value is not None:
                refuse(name, type(value).__name__, "None: this loss' own is the one that is carried; leave it out")
        if collect_stats:
            refuse("collect_stats", collect_stats, "False: nothing is recorded here")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Rows of equal labels are positives, of other labels negatives.

        Args:
            embeddings: (N, D), normalised here.
            labels: (N,) integers.
            indices_tuple: None; pairs that a miner chose are refused.
            ref_emb, ref_labels: (M, D), (M,), to compare with; None: the embeddings with each other.
        """
        check_rows("embeddings", embeddings)
        if indices_tuple is not None:
            refuse(
                "indices_tuple", "what a miner chose", "None: pairs follow from labels here; give no miner or memory"
            )
        if labels is None:
            raise ValueError("labels is None, expected (N,) integers: they say what belongs together")
        itself = ref_emb is None or ref_labels is labels
        if ref_emb is None:
            keys, key_labels = embeddings, labels
        elif ref_labels is None:
            raise ValueError("ref_emb is given and ref_labels is None, expected (M,) integers")
        else:
            keys, key_labels = ref_emb, ref_labels
        labels, key_labels = labels.to(embeddings.device), key_labels.to(embeddings.device)
        check_rows("ref_emb", keys)
        check_alike("embeddings", embeddings, "ref_emb", keys, features_only=True)
        check_ids("labels", labels, len(embeddings), embeddings)
        check_ids("ref_labels", key_labels, len(keys), keys)
        return self._compared(_Rows(embeddings, keys, labels, key_labels, itself))

    def _compared(self, rows: "_Rows") -> Tensor:
        raise NotImplementedError(type(self).__name__)


class _Rows:
    """Queries, keys and their labels.

    Attributes:
        z, keys: (N, D), (M, D) of unit length; one tensor where the embeddings are compared with each other.
        positives: (N,), how many keys each row has.
        itself: whether key i is row i.
    """

    def __init__(self, embeddings: Tensor, keys: Tensor, labels: Tensor, key_labels: Tensor, itself: bool) -> None:
        self.z = unit(embeddings)
        self.keys = self.z if keys is embeddings else unit(keys)
        self.labels, self.key_labels, self.itself = labels, key_labels, itself
        negatives = count_negatives(labels, key_labels)  # (N,)
        self.positives = len(keys) - negatives - int(itself)
        pairs, others = int(self.positives.sum()), int(negatives.sum())
        self.none = pairs == 0 or others == 0 or (pairs <= 1 and others <= 1)

    def nothing(self) -> Tensor:
        """0, and part of the graph."""
        return (self.z * 0).sum()

    def pairs(self) -> tuple[Tensor, Tensor]:
        """(P,), (P,): every row with each of its positives."""
        ordered, order = self.key_labels.sort(stable=True)
        first = torch.searchsorted(ordered, self.labels)  # (N,)
        count = torch.searchsorted(ordered, self.labels, right=True) - first  # itself among them
        row = torch.arange(len(self.labels), device=count.device).repeat_interleave(count)
        place = torch.arange(len(row), device=count.device) - (count.cumsum(0) - count)[row]
        key = order[first[row] + place]
        other = row != key if self.itself else torch.ones_like(row, dtype=torch.bool)
        return row[other], key[other]


class NTXentLoss(_Loss):
    """`pytorch_metric_learning.losses.NTXentLoss`: each positive pair against the negatives of its first row.

    Args:
        temperature: divides the cosines; may be set anew between steps.

    >>> views, sample = torch.eye(4).repeat(2, 1), torch.arange(4).repeat(2)
    >>> round(float(NTXentLoss(temperature=0.5)(views, sample)), 4)  # each twin at 1, six negatives at 0
    0.5944
    """

    def __init__(self, temperature: float = 0.07, **options: Any) -> None:
        super().__init__(**options)
        self.temperature = temperature

    def _compared(self, rows: _Rows) -> Tensor:
        scale = inverse_temperature(self.temperature, rows.z)
        if rows.none:
            return rows.nothing()
        far = similarity_logsumexp(
            rows.z, rows.keys, scale=scale, query_ids=rows.labels, key_ids=rows.key_labels
        )  # (N,), of negatives
        row, key = rows.pairs()
        near = scale * paired_similarity(rows.z[row], rows.keys[key])  # (P,)
        return softplus(far[row] - near).mean()


class SupConLoss(_Loss):
    """`pytorch_metric_learning.losses.SupConLoss`: each row against everything, averaged over its positives.

    Args:
        temperature: divides the cosines; may be set anew between steps.
    """

    def __init__(self, temperature: float = 0.1, **options: Any) -> None:
        super().__init__(**options)
        self.temperature = temperature

    def _compared(self, rows: _Rows) -> Tensor:
        scale = inverse_temperature(self.temperature, rows.z)
        if rows.none:
            return rows.nothing()
        numbers = torch.arange(len(rows.z), device=rows.z.device) if rows.itself else None
        everything = similarity_logsumexp(
            rows.z, rows.keys, scale=scale, query_ids=numbers, key_ids=numbers
        )  # (N,), of positives and negatives
        found, classes = torch.cat([rows.labels, rows.key_labels]).unique(return_inverse=True)
        of_rows, of_keys = classes.split([len(rows.labels), len(rows.key_labels)])
        sums = rows.keys.new_zeros(len(found), rows.keys.shape[1]).index_add(0, of_keys, rows.keys)  # (C, D)
        positive = sums[of_rows] - rows.keys if rows.itself else sums[of_rows]  # (N, D), sum of the positives
        near = scale * paired_similarity(rows.z, positive) / rows.positives.clamp(min=1)  # (N,)
        loss = torch.where(rows.positives > 0, everything - near, 0.0)
        costs = loss[loss > 0]
        return costs.mean() if len(costs) else rows.nothing()


class TripletMarginLoss(_Loss):
    """`pytorch_metric_learning.losses.TripletMarginLoss`: all triplets of a batch, on the sphere, Euclidean.

    Its memory is N × N, where pytorch-metric-learning's is that of the triplets.

    Args:
        margin: by how much the negative must be farther.
        swap, smooth_loss, triplets_per_anchor: as they are by default; anything else is refused.
    """

    def __init__(
        self,
        margin: float = 0.05,
        swap: bool = False,
        smooth_loss: bool = False,
        triplets_per_anchor: int | Literal["all"] = "all",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        for name, value in (("swap", swap), ("smooth_loss", smooth_loss)):
            if value:
                refuse(name, value, "False; nearfar.losses.triplet takes triplets of your own")
        if triplets_per_anchor != "all":
            refuse("triplets_per_anchor", triplets_per_anchor, "'all', which takes N² log N steps here")
        check_at_least("margin", margin, 0.0)
        self.margin = margin

    def _compared(self, rows: _Rows) -> Tensor:
        if rows.keys is not rows.z:
            refuse("ref_emb", tuple(rows.keys.shape), "None: triplets are of one batch here; concatenate the two")
        return batch_triplet(rows.z, rows.labels, margin=self.margin, mining="all")
