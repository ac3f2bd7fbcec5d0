"""Positives and negatives from labels or from mined pairs, for the losses of pytorch-metric-learning."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from nearfar.adapters.processes import refuse
from nearfar.losses.arguments import l2_normalize
from nearfar.losses.engine.similarity import count_negatives


class Distance:
    """The distance of normalized embeddings; called, it returns the (N, M) matrix.

    Attributes:
        is_inverted: whether larger means closer.
        normalize_embeddings, p, power: attributes of pytorch-metric-learning, fixed here.
    """

    normalize_embeddings, p, power = True, 2, 1

    def __init__(self, kind: Literal["cosine", "euclidean"]) -> None:
        self.is_inverted = kind == "cosine"

    def __call__(self, query_emb: Tensor, ref_emb: Tensor | None = None) -> Tensor:
        query = l2_normalize(query_emb)
        keys = query if ref_emb is None else l2_normalize(ref_emb)
        return query @ keys.T if self.is_inverted else torch.cdist(query, keys)


class LabeledBatch:
    """Queries, keys and their classes.

    Attributes:
        z, keys: (N, D), (M, D), normalized; the same tensor if the embeddings are compared with each other.
        labels, key_labels: (N,), (M,), class indices from 0.
        positives: (N,), number of positives of each row.
        itself: whether key i is row i.
        is_empty: whether pytorch-metric-learning returns 0, because there are no pairs to compare.
    """

    def __init__(self, embeddings: Tensor, keys: Tensor, labels: Tensor, key_labels: Tensor, itself: bool) -> None:
        self.z = l2_normalize(embeddings)
        self.keys = self.z if keys is embeddings else l2_normalize(keys)
        self.labels, self.key_labels, self.itself = labels, key_labels, itself
        negatives = count_negatives(labels, key_labels)  # (N,)
        self.positives = len(keys) - negatives - int(itself)
        pairs, others = int(self.positives.sum()), int(negatives.sum())
        self.is_empty = pairs == 0 or others == 0 or (pairs <= 1 and others <= 1)

    def pairs(self) -> tuple[Tensor, Tensor]:
        """(P,), (P,): the rows and keys of all positive pairs."""
        ordered, order = self.key_labels.sort(stable=True)
        first = torch.searchsorted(ordered, self.labels)  # (N,)
        count = torch.searchsorted(ordered, self.labels, right=True) - first  # itself among them
        row = torch.arange(len(self.labels), device=count.device).repeat_interleave(count)
        place = torch.arange(len(row), device=count.device) - (count.cumsum(0) - count)[row]
        key = order[first[row] + place]
        other = row != key if self.itself else torch.ones_like(row, dtype=torch.bool)
        return row[other], key[other]

    def sum_of_positives(self) -> Tensor:
        """(N, D), the sum of the positives of each row."""
        sums = self.keys.new_zeros(self._classes(), self.keys.shape[1]).index_add(0, self.key_labels, self.keys)
        return sums[self.labels] - self.keys if self.itself else sums[self.labels]

    def ids_of_all_but_one_positive(self) -> tuple[Tensor, Tensor]:
        """(N,), (M,), equal if the key is the row itself, or its only positive."""
        one = self.positives == 1
        if not self.itself:
            return torch.where(one, self.labels, -1), self.key_labels
        itself = self._classes() + torch.arange(len(one), device=one.device)  # ids that are no class
        ids = torch.where(one, self.labels, itself)
        return ids, ids

    def _classes(self) -> int:
        return int(torch.maximum(self.labels.max(), self.key_labels.max())) + 1


def class_indices(labels: Tensor, key_labels: Tensor, rows: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """(N,), (M,): labels of any type as class indices from 0; the same tensor if the labels are."""
    for name, given, of in (("labels", labels, rows), ("ref_labels", key_labels, keys)):
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} is a {type(given).__name__}, expected a torch.Tensor")
        if given.shape != (len(of),):
            raise ValueError(f"{name} has shape {tuple(given.shape)}, expected ({len(of)},): one for each row")
    if key_labels is labels:
        found = labels.to(rows.device).unique(return_inverse=True)[1]
        return found, found
    both = torch.cat([labels.to(rows.device), key_labels.to(rows.device)]).unique(return_inverse=True)[1]
    return both[: len(labels)], both[len(labels) :]


class MinedPairs(NamedTuple):
    """Pairs chosen by a miner or a memory: row numbers and key numbers."""

    anchor: Tensor  # (P,)
    positive: Tensor  # (P,)
    anchor_of_negative: Tensor  # (Q,)
    negative: Tensor  # (Q,)

    # Set for triplets, which a miner chose as such: then the four above are the same rows, one of each per triplet.
    are_triplets: bool = False

    def triplets(self) -> tuple[Tensor, Tensor, Tensor]:
        """(T,) three times: the triplets, or each positive pair with each negative pair of its anchor."""
        if self.are_triplets:
            return self.anchor, self.positive, self.negative
        pair, other = torch.where(self.anchor[:, None] == self.anchor_of_negative)
        return self.anchor[pair], self.positive[pair], self.negative[other]

    @property
    def is_empty(self) -> bool:
        """Whether pytorch-metric-learning returns 0, because there are no pairs to compare."""
        sizes = len(self.anchor), len(self.negative)
        return min(sizes) == 0 or max(sizes) <= 1

    def masks(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """(N, M), (N, M): masks of the positive and the negative pairs."""
        positive, negative = torch.zeros_like(like, dtype=torch.bool), torch.zeros_like(like, dtype=torch.bool)
        positive[self.anchor, self.positive] = True
        negative[self.anchor_of_negative, self.negative] = True
        if bool((positive & negative).any()):
            refuse("indices_tuple", "a pair as positive and as negative", "each pair as one of them")
        return positive, negative


def mined_pairs(indices_tuple: Any, device: torch.device) -> MinedPairs:
    """(anchor, positive, anchor, negative), or triplets as such pairs."""
    given = tuple(indices_tuple) if isinstance(indices_tuple, (tuple, list)) else ()
    if len(given) not in (3, 4) or not all(isinstance(x, Tensor) and x.ndim == 1 for x in given):
        refuse("indices_tuple", indices_tuple, "3 or 4 tensors of row numbers, as a miner gives them")
    moved = [x.to(device).long() for x in given]
    return MinedPairs(*moved) if len(moved) == 4 else MinedPairs(moved[0], moved[1], moved[0], moved[2], True)


def labeled_pairs(labels: Tensor, key_labels: Tensor, itself: bool) -> MinedPairs:
    """All pairs of (N,) and (M,) labels: equal ones are positive, and others negative; a row is no pair with itself."""
    same = labels[:, None] == key_labels  # (N, M)
    anchor_of_negative, negative = torch.where(~same)
    anchor, positive = torch.where(same.fill_diagonal_(False) if itself else same)
    return MinedPairs(anchor, positive, anchor_of_negative, negative)
