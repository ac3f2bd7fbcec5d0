"""Labels that are probably wrong, and samples unlike all others, from embeddings alone.

A classifier that has not seen a sample says what its label should be: the mean of a linear probe, fitted on the other
folds, and of the nearest neighbors. Each class's probability is divided by what its own samples have on average, as in
confident learning, since the classifier is surer of some classes than of others. A label is doubted where another class
is then more than e² times as probable.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.evaluation.knn import check_classes, knn_votes, nearest
from nearfar.evaluation.linear import linear_probe
from nearfar.losses.arguments import check_rows, l2_normalize

FOLDS = 5
FEWEST = 10  # samples of a class: of smaller ones no label is doubted, and none is suggested
NEIGHBORS = 20
TEMPERATURE = 0.07  # of the neighbors' votes, as in `knn_predict`
OUTLIER_NEIGHBORS = 10
DOUBTED = 2.0  # log of the ratio of probabilities from which a label is doubted
FAR = 4.0  # deviations above the median from which a sample is an outlier


@dataclass(frozen=True)
class LabelErrors:
    """E doubted labels, the most doubtful first.

    Attributes:
        rows: (E,) their rows.
        suggested: (E,) the classes that they should be.
        margins: (E,) log of how many times more probable that class is, both relative to their averages.
        judged: labels that could be judged: those of classes with enough samples.
    """

    rows: Tensor
    suggested: Tensor
    margins: Tensor
    judged: int

    def __len__(self) -> int:
        return len(self.rows)


@torch.no_grad()
def find_label_errors(
    x: Tensor, labels: Tensor, *, seed: int = 0, advance: Callable[[int], None] = lambda _: None
) -> LabelErrors:
    """Labels that embeddings contradict.

    Args:
        x: (N, D) embeddings.
        labels: (N,) integers from 0; -1 where there is none.
        seed: of the folds.
        advance: called with numbers of finished steps, two in all.

    Reference: Northcutt, Jiang and Chuang 2021, section 3, https://arxiv.org/abs/1911.00068. Deviations: the neighbors,
    and the ratio to the stated class in place of counts of the confident joint.
    """
    check_rows("x", x)
    known = ((labels >= 0) & (_sizes(labels) >= FEWEST)).nonzero()[:, 0]
    names, own = labels[known].unique(return_inverse=True)  # classes that are large enough
    if len(names) < 2:
        empty = torch.zeros(0, dtype=torch.long)
        return LabelErrors(empty, empty, torch.zeros(0), 0)
    rows, classes = x[known].float(), len(names)
    check_classes(own, rows, classes)
    similarity, places = _neighbors(l2_normalize(rows), NEIGHBORS)
    advance(1)
    p = knn_votes(similarity, own[places], temperature=TEMPERATURE, classes=classes)
    p = (p + _probe_probabilities(rows, own, classes, seed)) / 2
    advance(1)
    guess, margins = log_ratios(p, own)
    wrong = (margins > DOUBTED).nonzero()[:, 0]
    wrong = wrong[margins[wrong].argsort(descending=True, stable=True)]
    return LabelErrors(known[wrong], names[guess[wrong]], margins[wrong], len(known))


def log_ratios(p: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest other class, and log of its probability over that of the stated one, both relative to their means.

    Args:
        p: (N, C) probabilities by a classifier that has not seen the row.
        labels: (N,) integers from 0 to C - 1, each of which occurs.

    Returns:
        (N,) classes and (N,) logarithms.

    >>> log_ratios(torch.tensor([[0.8, 0.2], [0.2, 0.8]]), torch.tensor([0, 1]))[1].exp()
    tensor([0.2500, 0.2500])
    """
    own = p.gather(1, labels[:, None])[:, 0]
    total = torch.zeros(p.shape[1], dtype=p.dtype).index_add_(0, labels, own)
    usual = total / labels.bincount(minlength=p.shape[1])  # (C,)
    relative = (p / usual.clamp_min(1e-9)).clamp_min(1e-9).log()
    other = relative.scatter(1, labels[:, None], -torch.inf).max(1)
    return other.indices, other.values - relative.gather(1, labels[:, None])[:, 0]


def _sizes(labels: Tensor) -> Tensor:
    """(N,) how many rows have the label of each."""
    counts = (labels + 1).bincount()
    return counts[labels + 1]


def _probe_probabilities(x: Tensor, labels: Tensor, classes: int, seed: int) -> Tensor:
    """(N, C) by linear probes, each fitted on the other folds; one strength for all."""
    fold = torch.empty(len(x), dtype=torch.long)
    generator = torch.Generator().manual_seed(seed)
    for label in range(classes):
        rows = (labels == label).nonzero()[:, 0]
        fold[rows[torch.randperm(len(rows), generator=generator)]] = torch.arange(len(rows)) % FOLDS
    strength = linear_probe(x, labels, classes=classes, seed=seed).c
    p = torch.empty(len(x), classes)
    for held in (fold == number for number in range(FOLDS)):
        p[held] = linear_probe(x[~held], labels[~held], classes=classes, strengths=[strength])(x[held]).softmax(1)
    return p


def _neighbors(unit: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(N, k) cosines and rows of the nearest others, fewer where there are fewer."""
    k = min(k, len(unit) - 1)
    similarity, rows = nearest(unit, unit, k=k + 1)
    other = rows != torch.arange(len(unit))[:, None]
    other[:, -1] &= ~other.all(1)  # equal rows may have displaced the row itself
    return similarity[other].view(-1, k), rows[other].view(-1, k)


@torch.no_grad()
def find_outliers(x: Tensor) -> tuple[Tensor, Tensor]:
    """Samples unlike all others, the farthest first: their (O,) rows, and (O,) mean cosines with the nearest others.

    A sample is an outlier where the logarithm of its mean distance to the 10 nearest others is 4 deviations above the
    median; the deviation is that of a normal distribution with the same distance between median and quartile.

    Args:
        x: (N, D) embeddings.
    """
    check_rows("x", x)
    none = torch.zeros(0, dtype=torch.long), torch.zeros(0)
    if len(x) <= OUTLIER_NEIGHBORS:
        return none
    unit = l2_normalize(x.float())
    similarity, _ = _neighbors(unit, OUTLIER_NEIGHBORS)
    distance = (2 - 2 * similarity).clamp_min(1e-12).sqrt().mean(1).log()
    middle, upper = distance.median(), distance.kthvalue(max(1, 3 * len(x) // 4)).values
    deviation = float(upper - middle) / 0.6745
    if deviation <= 0:
        return none
    far = (distance > middle + FAR * deviation).nonzero()[:, 0]
    rows = far[distance[far].argsort(descending=True, stable=True)]
    return rows, similarity[rows].mean(1)
