"""Metrics of class scores: values by torchmetrics, intervals by the bootstrap."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.evaluation.metrics import accuracy, proportion, resamples, with_interval
from nearfar.evaluation.paired import SampleValues
from nearfar.evaluation.task import Curves, Outcome, Task, arrays
from nearfar.metric_text import MetricStyle

STYLES = {"calibration error": MetricStyle(less_is_better=True)}
BINS = 15  # of the calibration error, as Guo et al. 2017 have it
Curve = Callable[..., tuple[Tensor, Tensor, Tensor]]  # of torchmetrics: scores and truth to x, y and thresholds
_GRID = 201  # points at which curves are kept
_CONFUSED = 2000  # classes of a confusion matrix, at most
_RARE = 0.1  # share of the rarest class below which a note warns of ROC


def classification(scores: Tensor, labels: Tensor, *, classes: int, count: int, seed: int) -> Outcome:
    """All metrics of a classifier on test rows.

    Of single labels, micro precision, recall and F1 all equal the accuracy, and macro recall the balanced accuracy:
    each is listed once. AUC and AP are one class against the rest, averaged over the classes that occur.

    Args:
        scores: (N, C) probabilities; rows sum to one.
        labels: (N,) integers from 0 to C - 1.
        classes: C.
        count, seed: of the bootstrap's resamples.

    Reference: calibration error: Guo et al. 2017, eq. 3, https://arxiv.org/abs/1706.04599
    """
    from nearfar import _torchvision  # noqa: F401, before torchmetrics

    import torchmetrics.functional.classification as tm  # isort: skip

    scores, labels = scores.cpu().float().clamp(0, 1), labels.cpu().long()  # 1.0000001 would be taken for a logit
    predicted = scores.argmax(1)
    present = labels.unique()
    options: dict[str, Any] = {"num_classes": classes, "average": None}
    precision, recall, f1 = (
        f(predicted, labels, **options) for f in (tm.multiclass_precision, tm.multiclass_recall, tm.multiclass_f1_score)
    )  # (C,)
    seen = torch.isin(torch.arange(classes), torch.cat([present, predicted]))  # as scikit-learn takes the mean
    values = {
        "balanced accuracy": recall[present].mean(),
        "precision macro": precision[seen].mean(),
        "F1 macro": f1[seen].mean(),
        "calibration error": tm.multiclass_calibration_error(scores, labels, classes, n_bins=BINS, norm="l1"),
    }
    if len(present) > 1:
        rest = [(scores[:, c], (labels == c).long()) for c in present.tolist()]
        values["AUC"] = torch.stack([tm.binary_auroc(*one) for one in rest]).mean()
        values["AP"] = torch.stack([tm.binary_average_precision(*one) for one in rest]).mean()
    draws: dict[str, list[Tensor]] = {name: [] for name in values}
    for weights in resamples(labels, count=count, seed=seed):
        for name, found in weighted_metrics(scores, labels, weights).items():
            if name in draws:
                draws[name].append(found)
    metrics = {"accuracy": accuracy(predicted, labels)}
    if classes > 5:
        best = scores.argsort(dim=1, descending=True, stable=True)[:, :5]  # of equal scores the first, as in argmax
        metrics["top-5 accuracy"] = proportion((best == labels[:, None]).any(1))
    for name, value in values.items():
        metrics[name] = with_interval(float(value), torch.cat(draws[name]), len(labels))
    curves = arrays(
        precision=precision,
        recall=recall,
        f1=f1,
        support=labels.bincount(minlength=classes),
    )
    if classes <= _CONFUSED:
        curves |= arrays(confusion=tm.multiclass_confusion_matrix(predicted, labels, classes))
    if len(present) > 1:
        curves |= _curves(scores, labels, present, tm.binary_roc, tm.binary_precision_recall_curve)
    return Outcome(
        metrics,
        curves | _reliability(scores, labels),
        [*imbalance(labels), *lonely(labels)],
        {"accuracy": SampleValues(predicted == labels)},
    )


def classified(task: Task, scores: Tensor, seed: int) -> Outcome:
    """`classification` of the test part of a task."""
    found = classification(scores, task.test.labels, classes=task.classes, count=task.bootstrap, seed=seed)
    found.curves["classes"] = np.array(task.class_names)
    return found


def imbalance(labels: Tensor) -> list[str]:
    """A warning where rare classes make ROC look better than it is, else nothing."""
    counts = labels.bincount()
    counts = counts[counts > 0]
    rarest = float(counts.min() / counts.sum())
    if len(counts) < 2 or rarest >= _RARE:
        return []
    words = f"the rarest class has {100 * rarest:.1f} % of the test samples: with so many negatives, ROC and AUC look "
    return [words + "better than the classifier is; read AP (precision-recall) and balanced accuracy, too"]


def lonely(labels: Tensor) -> list[str]:
    """A warning where a class has one row: resampled within its class, it never varies."""
    alone = int((labels.bincount() == 1).sum())
    if not alone:
        return []
    what = "one class has a single test sample" if alone == 1 else f"{alone} classes have a single test sample each"
    return [f"{what}: the intervals of the class means leave its chance out, and are too narrow"]


def weighted_metrics(scores: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """The metrics of R weightings of the rows at once, where torchmetrics would sort anew for each.

    Args:
        scores: (N, C), labels: (N,).
        weights: (R, N), how often each row counts.

    Returns:
        (R,) by metric.
    """
    predicted, present = scores.argmax(1), labels.unique()
    none = torch.zeros(len(weights), scores.shape[1])
    truth, guess = (none.index_add(1, of, weights) for of in (labels, predicted))  # (R, C)
    right = none.index_add(1, labels, weights * (labels == predicted))
    seen = (truth + guess > 0).float()
    found = {
        "balanced accuracy": (right / truth.clamp_min(1))[:, present].mean(1),
        "precision macro": (right / guess.clamp_min(1)).sum(1) / seen.sum(1),
        "F1 macro": (2 * right / (truth + guess).clamp_min(1)).sum(1) / seen.sum(1),
        "calibration error": _calibration_error(scores, labels, weights),
    }
    areas = [_areas(scores[:, c], labels == c, weights) for c in present.tolist()]
    found["AUC"], found["AP"] = (torch.stack(each).mean(0) for each in zip(*areas, strict=True))
    return found


def _areas(score: Tensor, positive: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(R,) areas under the ROC curve and average precisions, rows of equal score taken together."""
    order = score.argsort(descending=True)
    last = torch.cat([score[order].diff() != 0, torch.tensor([True])]).nonzero()[:, 0]  # of each group of equals
    drawn = weights[:, order].double()
    all_up_to = drawn.cumsum(1)[:, last]  # (R, groups)
    right_up_to = (drawn * positive[order]).cumsum(1)[:, last]
    wrong_up_to = all_up_to - right_up_to
    zero = all_up_to.new_zeros(len(weights), 1)
    right, wrong = (torch.cat([zero, x], 1).diff() for x in (right_up_to, wrong_up_to))
    positives, negatives = right_up_to[:, -1].clamp_min(1), wrong_up_to[:, -1].clamp_min(1)
    area = (wrong * (right_up_to - right / 2)).sum(1) / (positives * negatives)
    precision = (right * right_up_to / all_up_to.clamp_min(1)).sum(1) / positives
    return area, precision


def _calibration_error(scores: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    confidence, predicted = scores.max(1)
    bins = _bins(confidence)
    gap = weights.new_zeros(len(weights), BINS)
    gap.index_add_(1, bins, weights * (confidence - (predicted == labels).float()))
    return gap.abs().sum(1) / weights.sum(1)


def _bins(confidence: Tensor) -> Tensor:
    return torch.bucketize(confidence, torch.linspace(0, 1, BINS + 1), right=True).sub(1).clamp(0, BINS - 1)


def _reliability(scores: Tensor, labels: Tensor) -> Curves:
    """In each bin of confidence: mean confidence, accuracy and number of rows."""
    confidence, predicted = scores.max(1)
    bins = _bins(confidence)
    n = bins.bincount(minlength=BINS)
    mean = (bins.bincount(confidence, BINS) / n, bins.bincount((predicted == labels).float(), BINS) / n)
    return arrays(bin_confidence=mean[0], bin_accuracy=mean[1], bin_count=n)


def _curves(scores: Tensor, labels: Tensor, present: Tensor, roc: Curve, pr: Curve) -> Curves:
    """ROC and precision-recall of each class that occurs, at common places."""
    grid = np.linspace(0, 1, _GRID)
    rocs, prs = [], []
    for c in present.tolist():
        false_rate, true_rate, _ = roc(scores[:, c], (labels == c).long())
        rocs.append(np.interp(grid, false_rate.numpy(), true_rate.numpy()))
        precision, recall, _ = pr(scores[:, c], (labels == c).long())
        prs.append(np.interp(grid, recall.flip(0).numpy(), precision.flip(0).numpy()))
    return {
        "grid": grid,
        "roc": np.stack(rocs),  # true positive rate of each class at the false positive rates of the grid
        "pr": np.stack(prs),  # precision at the recalls of the grid
        "present": present.numpy(),
    }


def probabilities(logits: Tensor) -> Tensor:
    """(N, C) logits to probabilities in float32."""
    return logits.float().softmax(1)
