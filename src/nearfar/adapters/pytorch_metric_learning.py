"""Losses of pytorch-metric-learning (2.9): `from nearfar.adapters.pytorch_metric_learning import NTXentLoss`.

They take (embeddings, labels, indices_tuple, ref_emb=, ref_labels=), and go into its `SelfSupervisedLoss` and, but for
`TripletMarginLoss`, its `CrossBatchMemory`, which ask for their names. There, NT-Xent holds a matrix of positive pairs
by negative pairs; here, memory is linear in rows and positive pairs. Pairs that a miner or `CrossBatchMemory` chose
need the matrix of similarities. Distances, reducers and regularizers other than a loss' own are refused.

What may surprise in pytorch-metric-learning, and is the same here:

- Where `ref_labels` is the very tensor `labels`, or is left out, row i of `ref_emb` is taken for row i of `embeddings`
  itself, and is no positive of it. For two views of the same samples give `labels.clone()`.
- The mean of `SupConLoss` and `TripletMarginLoss` is over what costs more than 0, so it may rise as more is learned.
  A row of `SupConLoss` that costs less than 1e-14 may be counted there and not here, or here and not there: rounding
  decides, and the mean differs by that row.
- Without a negative, without a positive, or with no more than one of each, the loss is 0.

What is another:

- Near its end `SupConLoss` in float32 has the value and the gradient that it has in float64. There, what costs less
  than 6e-8 rounds to 0, and is left out of the mean.
- `NTXentLoss` ends there at 87 in float32, where the share of the positive falls below the least float and its gradient
  vanishes; here it goes on.
- Half precision is widened to float32, and so is the result. There, sums in float16 or bfloat16 may move `NTXentLoss`
  by several per cent.
- A row of zeros gets no gradient.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from nearfar.adapters.labelled import Distance, Pairs, Rows, classes_of, pairs_of
from nearfar.adapters.processes import refuse
from nearfar.losses import batch_triplet, similarity_logsumexp
from nearfar.losses.arguments import (
    accumulable,
    check_alike,
    check_at_least,
    check_rows,
    inverse_temperature,
    softplus,
    unit,
)
from nearfar.losses.engine.similarity import exact, paired_similarity
from nearfar.losses.supervised import mean_over_positives

__all__ = ["NTXentLoss", "SupConLoss", "TripletMarginLoss"]

# log(1 + x) is 0 in float64 below this, so there such a row is no part of the mean.
_LEAST_COST = 2.0**-53


class _Loss(nn.Module):
    """What all of them take, and refuse.

    Attributes:
        distance: what embeddings are compared by; it has no setting.
    """

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
        self.distance = Distance("cosine")

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
            labels: (N,) numbers of any type; may be left out where pairs are given.
            indices_tuple: None, or what a miner or `CrossBatchMemory` chose: (anchor, positive, anchor, negative) or
                (anchor, positive, negative), each (P,) numbers of rows.
            ref_emb, ref_labels: (M, D), (M,), to compare with; None: the embeddings with each other.
        """
        keys = embeddings if ref_emb is None else ref_emb
        if any(isinstance(x, Tensor) and len(x) == 0 for x in (embeddings, keys)):
            return _nothing(embeddings)
        check_rows("embeddings", embeddings)
        check_rows("ref_emb", keys)
        check_alike("embeddings", embeddings, "ref_emb", keys, features_only=True)
        if indices_tuple is not None:
            return self._chosen(unit(embeddings), unit(keys), pairs_of(indices_tuple, embeddings.device))
        if labels is None:
            raise ValueError("labels is None, expected (N,) numbers: they say what belongs together")
        itself = ref_emb is None or ref_labels is None or ref_labels is labels
        key_labels = labels if itself or ref_labels is None else ref_labels
        if itself and len(keys) != len(embeddings):
            raise ValueError(
                f"ref_emb has {len(keys)} rows and no labels of its own, expected {len(embeddings)}; give ref_labels"
            )
        of_rows, of_keys = classes_of(labels, key_labels, embeddings, keys)
        return self._compared(Rows(embeddings, keys, of_rows, of_keys, itself))

    def _compared(self, rows: Rows) -> Tensor:
        """The loss by labels."""
        raise NotImplementedError(type(self).__name__)

    def _chosen(self, z: Tensor, keys: Tensor, pairs: Pairs) -> Tensor:
        """The loss of unit rows over chosen pairs."""
        raise NotImplementedError(type(self).__name__)


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

    def _compared(self, rows: Rows) -> Tensor:
        scale = inverse_temperature(self.temperature, rows.z)
        if rows.none:
            return _nothing(rows.z)
        far = similarity_logsumexp(
            rows.z, rows.keys, scale=scale, query_ids=rows.labels, key_ids=rows.key_labels
        )  # (N,), of negatives
        row, key = rows.pairs()
        near = scale * paired_similarity(rows.z[row], rows.keys[key])  # (P,)
        return softplus(far[row] - near).mean()

    def _chosen(self, z: Tensor, keys: Tensor, pairs: Pairs) -> Tensor:
        s = _similarities(z, keys, inverse_temperature(self.temperature, z))  # (N, M)
        if pairs.none:
            return _nothing(z)
        chosen = s[pairs.anchor_of_negative, pairs.negative]  # (Q,), a negative may be chosen twice, and counts twice
        far = _log_sums(chosen, pairs.anchor_of_negative, len(z))  # (N,)
        return softplus(far[pairs.anchor] - s[pairs.anchor, pairs.positive]).mean()


class SupConLoss(_Loss):
    """`pytorch_metric_learning.losses.SupConLoss`: each row against everything, averaged over its positives.

    Args:
        temperature: divides the cosines; may be set anew between steps.
    """

    def __init__(self, temperature: float = 0.1, **options: Any) -> None:
        super().__init__(**options)
        self.temperature = temperature

    def _compared(self, rows: Rows) -> Tensor:
        scale = inverse_temperature(self.temperature, rows.z)
        if rows.none:
            return _nothing(rows.z)
        query_ids, key_ids = rows.ids_of_all_but_one_positive()
        others = similarity_logsumexp(rows.z, rows.keys, scale=scale, query_ids=query_ids, key_ids=key_ids)  # (N,)
        near = scale * paired_similarity(rows.z, rows.sum_of_positives()) / rows.positives.clamp(min=1)  # (N,)
        return _mean_of_costs(mean_over_positives(others, near, rows.positives))

    def _chosen(self, z: Tensor, keys: Tensor, pairs: Pairs) -> Tensor:
        s = _similarities(z, keys, inverse_temperature(self.temperature, z))  # (N, M)
        if pairs.none:
            return _nothing(z)
        positive, negative = pairs.masks(s)
        positives = positive.sum(1)  # (N,)
        near = (s * positive).sum(1) / positives.clamp(min=1)  # (N,)
        compared = negative | (positive & (positives != 1)[:, None])
        others = s.masked_fill(~compared, -torch.inf).logsumexp(1)  # (N,)
        return _mean_of_costs(mean_over_positives(others, near, positives))


def _similarities(z: Tensor, keys: Tensor, scale: Tensor) -> Tensor:
    """(N, M), of chosen pairs and of all others."""
    with exact(z):
        return scale * z @ keys.T


def _log_sums(x: Tensor, row: Tensor, rows: int) -> Tensor:
    """(rows,), log-sum-exp of the (Q,) values of each row; -inf without one."""
    top = x.new_full((rows,), -torch.inf).scatter_reduce(0, row, x.detach(), "amax")
    total = x.new_zeros(rows).index_add(0, row, (x - top[row]).exp())
    return torch.where(total > 0, total, 1.0).log() + top


def _mean_of_costs(loss: Tensor) -> Tensor:
    """The mean over the rows that cost something, as float64 has it, whatever the type."""
    costs = loss[loss > _LEAST_COST]
    return costs.mean() if len(costs) else _nothing(loss)


def _nothing(x: Tensor) -> Tensor:
    """0, and part of the graph."""
    return (accumulable(x) * 0).sum()


class TripletMarginLoss(_Loss):
    """`pytorch_metric_learning.losses.TripletMarginLoss`: all triplets of a batch, on the sphere, Euclidean.

    Its memory is N × N, where pytorch-metric-learning's is that of the triplets. Of a memory, of a miner or of
    references it is not to be had: `nearfar.losses.triplet` takes triplets of your own.

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
        if margin < 0:
            refuse("margin", margin, "0 or more: below 0 a negative that is nearer than the positive may cost nothing")
        check_at_least("margin", margin, 0.0)
        self.margin = margin
        self.distance = Distance("euclidean")

    def _compared(self, rows: Rows) -> Tensor:
        if rows.keys is not rows.z:
            refuse("ref_emb", tuple(rows.keys.shape), "None: triplets are of one batch here; concatenate the two")
        return batch_triplet(rows.z, rows.labels, margin=self.margin, mining="all")

    def _chosen(self, z: Tensor, keys: Tensor, pairs: Pairs) -> Tensor:
        raise ValueError(
            "indices_tuple is given, by a miner or CrossBatchMemory, expected None: this loss takes all triplets of a "
            "batch; give chosen ones to nearfar.losses.triplet"
        )
