"""Losses of pytorch-metric-learning (2.9): `from nearfar.adapters.pytorch_metric_learning import NTXentLoss`.

They take (embeddings, labels, indices_tuple, ref_emb=, ref_labels=), and work in its `SelfSupervisedLoss` and
`CrossBatchMemory`; `DistributedLossWrapper` is here, too, since theirs takes its own losses only. There, NT-Xent holds
a matrix of positive pairs by negative pairs; here, memory is linear in rows and positive pairs. Pairs from a miner or a
memory, another distance and another reducer (objects of pytorch-metric-learning) need the similarity matrix.
Regularizers and statistics are not supported.

Surprising behaviour of pytorch-metric-learning that is the same here:

- If `ref_labels` is the same tensor as `labels`, or is not given, row i of `ref_emb` is assumed to be row i of
  `embeddings` itself, and is not its positive. For two views of the same samples pass `labels.clone()`.
- The mean of `SupConLoss` and `TripletMarginLoss` is over losses above 0, so it may rise during training. A row of
  `SupConLoss` with a loss below 1e-14 may be counted in one library and not in the other, by rounding.
- Without a negative, without a positive, or with at most one of each, the loss is 0.

Different here:

- A small `SupConLoss` has the same value and gradient in float32 as in float64. There, losses below 6e-8 round to 0 and
  are not counted in the mean.
- `NTXentLoss` in float32 ends at 87 there, where the positive's probability underflows and its gradient vanishes; here
  it does not.
- Half precision becomes float32, and so does the result. There, sums in float16 or bfloat16 may change `NTXentLoss` by
  several per cent.
- A row of zeros gets no gradient.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nearfar.adapters.distributed_wrapper import DistributedLossWrapper
from nearfar.adapters.labeled import (
    Distance,
    LabeledBatch,
    MinedPairs,
    class_indices,
    labeled_pairs,
    mined_pairs,
)
from nearfar.adapters.processes import refuse
from nearfar.losses import batch_triplet, similarity_logsumexp
from nearfar.losses.arguments import (
    check_at_least,
    check_compatible,
    check_rows,
    inverse_temperature,
    softplus,
    upcast_half,
)
from nearfar.losses.engine.precision import no_autocast
from nearfar.losses.engine.similarity import paired_similarity
from nearfar.losses.supervised import mean_over_positives

__all__ = ["DistributedLossWrapper", "NTXentLoss", "SupConLoss", "TripletMarginLoss"]

# log(1 + x) is 0 in float64 below this, so such a row is not counted in the mean.
_LEAST_COST = 2.0**-53


class _Loss(nn.Module):
    """Arguments that all losses share.

    Attributes:
        distance: of embeddings, called with (N, D) and (M, D); `is_inverted` says whether larger means closer.
        reducer: None for the loss' default, or called with the losses as pytorch-metric-learning does.
        collect_stats: False; there are no statistics.
    """

    collect_stats = False
    _default_distance: Literal["cosine", "euclidean"] = "cosine"

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
        if embedding_regularizer is not None:
            refuse("embedding_regularizer", type(embedding_regularizer).__name__, "None: add it to the loss yourself")
        if collect_stats:
            refuse("collect_stats", collect_stats, "False: no statistics are recorded here")
        for name, value in (("distance", distance), ("reducer", reducer)):
            if value is not None and not callable(value):
                refuse(name, value, f"None or a {name} of pytorch-metric-learning")
        self.distance = Distance(self._default_distance) if distance is None else distance
        self.reducer = reducer

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
            embeddings: (N, D), normalized here.
            labels: (N,) of any numeric type; not needed with `indices_tuple`.
            indices_tuple: None, or pairs from a miner or `CrossBatchMemory`: (anchor, positive, anchor, negative) or
                (anchor, positive, negative), each (P,) row numbers.
            ref_emb, ref_labels: (M, D), (M,), to compare with; None: compare the embeddings with each other.
        """
        keys = embeddings if ref_emb is None else ref_emb
        if any(isinstance(x, Tensor) and len(x) == 0 for x in (embeddings, keys)):
            return _zero_loss(embeddings)
        own_distance = isinstance(self.distance, Distance)
        if own_distance:  # another one may take tensors of any rank
            check_rows("embeddings", embeddings)
            check_rows("ref_emb", keys)
            check_compatible("embeddings", embeddings, "ref_emb", keys, features_only=True)
        if indices_tuple is not None:
            return self._loss_of_pairs(embeddings, keys, labels, mined_pairs(indices_tuple, embeddings.device))
        if labels is None:
            raise ValueError("labels is None, expected (N,) numbers: they define the positives")
        itself = ref_emb is None or ref_labels is None or ref_labels is labels
        key_labels = labels if itself or ref_labels is None else ref_labels
        if itself and len(keys) != len(embeddings):
            raise ValueError(f"ref_emb has {len(keys)} rows and embeddings {len(embeddings)}; pass ref_labels too")
        of_rows, of_keys = class_indices(labels, key_labels, embeddings, keys)
        if own_distance and self.reducer is None and self._needs_no_matrix(keys is embeddings):
            return self._label_loss(LabeledBatch(embeddings, keys, of_rows, of_keys, itself))
        return self._loss_of_pairs(embeddings, keys, labels, labeled_pairs(of_rows, of_keys, itself))

    def _needs_no_matrix(self, one_batch: bool) -> bool:
        """Whether `_label_loss` has the options that are set."""
        return True

    def _label_loss(self, rows: LabeledBatch) -> Tensor:
        """The loss with positives and negatives by labels."""
        raise NotImplementedError(type(self).__name__)

    def _loss_of_pairs(self, embeddings: Tensor, keys: Tensor, labels: Tensor | None, pairs: MinedPairs) -> Tensor:
        """The loss over pairs, with the whole matrix of distances."""
        with no_autocast(embeddings):
            matrix = upcast_half(self.distance(upcast_half(embeddings), upcast_half(keys)))  # (N, M)
            found = None if self._is_empty(pairs) else self._losses(matrix, pairs)
        if found is None or len(found.losses) == 0:
            return _zero_loss(embeddings)
        if self.reducer is None:
            return self._reduce(found.losses)
        reduced: Tensor = self.reducer({"loss": found._asdict()}, embeddings, labels)
        return reduced

    def _is_empty(self, pairs: MinedPairs) -> bool:
        return pairs.is_empty

    def _losses(self, matrix: Tensor, pairs: MinedPairs) -> "_Losses":
        raise NotImplementedError(type(self).__name__)

    def _reduce(self, losses: Tensor) -> Tensor:
        """The default reducer."""
        return _mean_above_zero(losses)

    def _logits(self, matrix: Tensor, temperature: float) -> Tensor:
        """(N, M), larger for closer rows."""
        scale = inverse_temperature(temperature, matrix)
        return matrix * (scale if self.distance.is_inverted else -scale)


class _Losses(NamedTuple):
    """Single losses, as a reducer of pytorch-metric-learning takes them."""

    losses: Tensor  # (L,)
    indices: Any  # what each is of
    reduction_type: str


class NTXentLoss(_Loss):
    """`pytorch_metric_learning.losses.NTXentLoss`: each positive pair against the negatives of its first row.

    Args:
        temperature: divides the cosines; may be changed between steps.

    >>> views, sample = torch.eye(4).repeat(2, 1), torch.arange(4).repeat(2)
    >>> round(float(NTXentLoss(temperature=0.5)(views, sample)), 4)  # each twin at 1, six negatives at 0
    0.5944
    """

    def __init__(self, temperature: float = 0.07, **options: Any) -> None:
        super().__init__(**options)
        self.temperature = temperature

    def _label_loss(self, rows: LabeledBatch) -> Tensor:
        scale = inverse_temperature(self.temperature, rows.z)
        if rows.is_empty:
            return _zero_loss(rows.z)
        negatives = similarity_logsumexp(
            rows.z, rows.keys, scale=scale, query_ids=rows.labels, key_ids=rows.key_labels
        )  # (N,)
        row, key = rows.pairs()
        positive = scale * paired_similarity(rows.z[row], rows.keys[key])  # (P,)
        return softplus(negatives[row] - positive).mean()

    def _losses(self, matrix: Tensor, pairs: MinedPairs) -> _Losses:
        s = self._logits(matrix, self.temperature)  # (N, M)
        chosen = s[pairs.anchor_of_negative, pairs.negative]  # (Q,), a negative that is chosen twice counts twice
        negatives = _log_sums(chosen, pairs.anchor_of_negative, len(s))  # (N,)
        losses = softplus(negatives[pairs.anchor] - s[pairs.anchor, pairs.positive])  # (P,)
        return _Losses(losses, (pairs.anchor, pairs.positive), "pos_pair")

    def _reduce(self, losses: Tensor) -> Tensor:
        return losses.mean()


class SupConLoss(_Loss):
    """`pytorch_metric_learning.losses.SupConLoss`: each row against all keys, averaged over its positives.

    Args:
        temperature: divides the cosines; may be changed between steps.
    """

    def __init__(self, temperature: float = 0.1, **options: Any) -> None:
        super().__init__(**options)
        self.temperature = temperature

    def _label_loss(self, rows: LabeledBatch) -> Tensor:
        scale = inverse_temperature(self.temperature, rows.z)
        if rows.is_empty:
            return _zero_loss(rows.z)
        query_ids, key_ids = rows.ids_of_all_but_one_positive()
        others = similarity_logsumexp(rows.z, rows.keys, scale=scale, query_ids=query_ids, key_ids=key_ids)  # (N,)
        positive = scale * paired_similarity(rows.z, rows.sum_of_positives()) / rows.positives.clamp(min=1)  # (N,)
        return _mean_above_zero(mean_over_positives(others, positive, rows.positives))

    def _losses(self, matrix: Tensor, pairs: MinedPairs) -> _Losses:
        s = self._logits(matrix, self.temperature)  # (N, M)
        positive, negative = pairs.masks(s)
        positives = positive.sum(1)  # (N,)
        mean_positive = (s * positive).sum(1) / positives.clamp(min=1)  # (N,)
        compared = negative | (positive & (positives != 1)[:, None])
        others = s.masked_fill(~compared, -torch.inf).logsumexp(1)  # (N,)
        losses = mean_over_positives(others, mean_positive, positives)
        return _Losses(losses, torch.arange(len(s), device=s.device), "element")


def _log_sums(x: Tensor, row: Tensor, rows: int) -> Tensor:
    """(rows,), log-sum-exp of the (Q,) values of each row; -inf for a row without values."""
    top = x.new_full((rows,), -torch.inf).scatter_reduce(0, row, x.detach(), "amax")
    total = x.new_zeros(rows).index_add(0, row, (x - top[row]).exp())
    return torch.where(total > 0, total, 1.0).log() + top


def _mean_above_zero(loss: Tensor) -> Tensor:
    """The mean over the rows with a loss above 0 in float64, for any type."""
    counted = loss[loss > _LEAST_COST]
    return counted.mean() if len(counted) else _zero_loss(loss)


def _zero_loss(x: Tensor) -> Tensor:
    """0, with a graph."""
    return (upcast_half(x) * 0).sum()


class TripletMarginLoss(_Loss):
    """`pytorch_metric_learning.losses.TripletMarginLoss`: all triplets of a batch, Euclidean, of normalized rows.

    Its memory is N × N, where pytorch-metric-learning holds all triplets. With a miner, a memory, references, another
    distance or reducer, `swap` or `smooth_loss`, the triplets are held here, too.

    Args:
        margin: by how much the negative must be farther.
        swap: the negative's distance is the smaller of those to anchor and positive.
        smooth_loss: log(1 + e^x) in place of max(0, x).
        triplets_per_anchor: only "all" is supported.
    """

    _default_distance = "euclidean"

    def __init__(
        self,
        margin: float = 0.05,
        swap: bool = False,
        smooth_loss: bool = False,
        triplets_per_anchor: int | Literal["all"] = "all",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if triplets_per_anchor != "all":
            refuse("triplets_per_anchor", triplets_per_anchor, "'all', which takes N² log N steps here")
        check_at_least("margin", margin, 0.0)
        self.margin, self.swap, self.smooth_loss = margin, swap, smooth_loss

    def _needs_no_matrix(self, one_batch: bool) -> bool:
        return one_batch and not (self.swap or self.smooth_loss)

    def _label_loss(self, rows: LabeledBatch) -> Tensor:
        return batch_triplet(rows.z, rows.labels, margin=self.margin, mining="all")

    def _is_empty(self, pairs: MinedPairs) -> bool:
        return min(len(pairs.anchor), len(pairs.negative)) == 0

    def _losses(self, matrix: Tensor, pairs: MinedPairs) -> _Losses:
        anchor, positive, negative = triplets = pairs.triplets()  # each (T,)
        near, far = matrix[anchor, positive], matrix[anchor, negative]
        larger_is_closer = self.distance.is_inverted
        if self.swap:
            other = matrix[positive, negative]
            far = torch.maximum(far, other) if larger_is_closer else torch.minimum(far, other)
        violation = (far - near if larger_is_closer else near - far) + self.margin
        return _Losses(softplus(violation) if self.smooth_loss else violation.relu(), triplets, "triplet")
