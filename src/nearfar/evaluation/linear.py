"""The linear probe: how much a straight cut through frozen features finds, fitted to the optimum and tuned honestly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.evaluation.knn import check_classes
from nearfar.evaluation.logistic import Curvature, curvature, fit_logistic
from nearfar.evaluation.metrics import accuracy
from nearfar.losses.arguments import check_positive, check_rows, upcast_half
from nearfar.modalities.splits import stratified_split

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # inverse L2 strengths that are tried
SPARSE_STRENGTHS = (1.0, 10.0, 100.0)  # of rows of length one, which are not standardised
_WEIGHTS = 1 << 20  # of a probe of sparse rows, at most: the fit remembers 10 times as many, 84 MB
_SPARSE_PASSES = 40  # over sparse rows, for each strength: more change no decision that counts
_EXACT = 1 << 26  # up to so many entries the last fit is in float64: in float32 it ends about 1e-3 off in probability
_PASSES = 200
_ROUGH = 1e-2  # a fit to choose a strength by: its objective is within about 1e-4 nats of the minimum


@dataclass(frozen=True)
class LinearProbe:
    """A linear classifier on features standardised by the statistics of its training part."""

    mean: Tensor  # (F,)
    deviation: Tensor  # (F,)
    weight: Tensor  # (C, F)
    bias: Tensor  # (C,)
    c: float  # inverse L2 strength, chosen on the validation split
    validation: float | None  # accuracy there; None where there was nothing to choose

    def __call__(self, h: Tensor) -> Tensor:
        """(N, F) features to (N, C) logits."""
        check_rows("h", h)
        if h.shape[1] != len(self.mean):
            raise ValueError(f"h has shape {tuple(h.shape)}, expected (N, {len(self.mean)}), as in training")
        if h.is_sparse:
            logits: Tensor = torch.sparse.mm(h, self.weight.T.contiguous()) + self.bias
            return logits
        return F.linear((upcast_half(h) - self.mean) / self.deviation, self.weight, self.bias)


def linear_probe(
    train: Tensor,
    labels: Tensor,
    *,
    classes: int,
    strengths: Sequence[float] | None = None,
    validation: float = 0.1,
    seed: int = 0,
) -> LinearProbe:
    """Multinomial logistic regression on frozen features, L2 strength chosen on a part of the training rows.

    The strengths are tried from strong to weak, each started from the last solution, until the validation accuracy
    has fallen twice in a row. The one with the best accuracy is fitted again on all training rows; where several are
    equally good, such as at 100 %, the one with the lowest cross-entropy. Test rows are never seen here.

    Args:
        train: (M, F) features. Sparse ones, such as tf-idf's, stay sparse and are not standardised; beyond 2^20 weights
            only the features that most rows have are looked at.
        labels: (M,) integers from 0 to classes - 1.
        classes: C.
        strengths: inverse L2 strengths C, in scikit-learn's sense: C · Σ loss + ½‖W‖²; `STRENGTHS` where None.
        validation: share of each class that is held out for the choice.
        seed: of the split.
    """
    check_rows("train", train)
    check_classes(labels, train, classes)
    if strengths is None:
        strengths = SPARSE_STRENGTHS if train.is_sparse else STRENGTHS
    if not strengths:
        raise ValueError("strengths is empty, expected at least one inverse L2 strength")
    for strength in strengths:
        check_positive("strengths", strength)
    labels = labels.long()
    if train.is_sparse and classes * train.shape[1] > max(classes, _WEIGHTS):
        return _of_frequent(train, labels, classes=classes, strengths=strengths, validation=validation, seed=seed)
    fit_rows, held_rows = stratified_split(labels, share=validation, seed=seed)
    best, found, start, shape = min(strengths), None, None, None
    if len(strengths) > 1 and len(held_rows):
        best, found, start, shape = _choose(train, labels, fit_rows, held_rows, classes, sorted(strengths))
    mean, deviation = standard(train)
    x = _scaled(train, mean, deviation)
    exact = not x.is_sparse and x.numel() <= _EXACT
    if x.is_sparse:
        weight, bias = fit_logistic(
            x, labels, classes=classes, c=best, start=start, iterations=_SPARSE_PASSES, tolerance=_ROUGH
        )
    else:
        weight, bias = fit_logistic(x, labels, classes=classes, c=best, start=start, shape=shape, refine=exact)
    return LinearProbe(mean, deviation, weight.to(mean), bias.to(mean), best, found)


def standard(train: Tensor) -> tuple[Tensor, Tensor]:
    """(F,) mean and deviation of (M, F) features; 1 where a feature is constant."""
    x = upcast_half(train)
    if x.is_sparse:  # centred rows would not be
        return torch.zeros(x.shape[1], device=x.device), torch.ones(x.shape[1], device=x.device)
    mean = x.mean(0)
    deviation = (x - mean).square_().mean(0).sqrt()  # a third of the time of torch.std_mean over the rows
    negligible = deviation <= 1e-6 * mean.abs() + torch.finfo(deviation.dtype).tiny
    return mean, deviation.masked_fill(negligible, 1.0)


def _scaled(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return x if x.is_sparse else (upcast_half(x) - mean) / deviation


def _of_frequent(
    train: Tensor, labels: Tensor, *, classes: int, strengths: Sequence[float], validation: float, seed: int
) -> LinearProbe:
    """The probe on so many sparse features, those that most rows have, as there may be weights."""
    often = train.coalesce().indices()[1].bincount(minlength=train.shape[1])
    kept = often.argsort(descending=True, stable=True)[: max(1, _WEIGHTS // classes)].sort().values
    few = linear_probe(
        train.index_select(1, kept), labels, classes=classes, strengths=strengths, validation=validation, seed=seed
    )
    weight = few.weight.new_zeros(classes, train.shape[1])
    weight[:, kept] = few.weight
    return LinearProbe(*standard(train), weight, few.bias, few.c, few.validation)


_Solution = tuple[Tensor, Tensor]  # (C, F) weight and (C,) bias


def _choose(
    train: Tensor, labels: Tensor, fit_rows: Tensor, held_rows: Tensor, classes: int, strengths: list[float]
) -> tuple[float, float, _Solution, Curvature | None]:
    """The strength that is best on validation rows, its accuracy and solution, and the curvature they shared."""
    fit_rows, held_rows = fit_rows.to(train.device), held_rows.to(train.device)
    x, held = (train.index_select(0, rows) for rows in (fit_rows, held_rows))
    mean, deviation = standard(x)
    x, held = (_scaled(part, mean, deviation) for part in (x, held))
    shape = None if x.is_sparse else curvature(x)
    best: tuple[float, float, _Solution] | None = None
    lowest, solution, last, falls = math.inf, None, 0.0, 0
    for c in strengths:
        solution = fit_logistic(
            x,
            labels[fit_rows],
            classes=classes,
            c=c,
            start=solution,
            shape=shape,
            iterations=_SPARSE_PASSES if x.is_sparse else _PASSES,
            tolerance=_ROUGH,
        )
        weight, bias = solution
        if held.is_sparse:
            logits = torch.sparse.mm(held, weight.T.to(held.dtype)) + bias.to(held.dtype)
        else:
            logits = F.linear(held, weight.to(held), bias.to(held))
        found = accuracy(logits, labels[held_rows]).value
        loss = float(F.cross_entropy(logits, labels[held_rows]))
        if best is None or found > best[1] or (found == best[1] and loss < lowest):
            best, lowest = (c, found, solution), loss
        falls = falls + 1 if found < last else 0
        last = found
        if falls == 2:
            break
    assert best is not None
    return *best, shape
