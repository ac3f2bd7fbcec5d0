"""Average precision of boxes, as pycocotools computes it, with an interval from resampled images."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.evaluation.metrics import Estimate, resamples, with_interval
from nearfar.modalities.image.data.boxes import Target

MOST = 100  # detections of an image that count
FOUND, FOUND_WELL = 0, 5  # places of the overlaps 0.5 and 0.75 among 0.5, 0.55, ..., 0.95

Floats = NDArray[np.float64]


class Found(NamedTuple):
    """What a detector sees on a picture."""

    boxes: Tensor  # (D, 4) x1, y1, x2, y2 in pixels of the stored picture
    kinds: Tensor  # (D,) numbers of classes
    scores: Tensor  # (D,)


@dataclass(frozen=True)
class Precision:
    """Precision of each class along its recall.

    Attributes:
        values: (10, 101, C) at overlaps of 0.5 to 0.95 and recalls of 0 to 1; -1 for a class without test boxes.
        recalls: (101,).
        matches: of each class with test boxes, what its resamples are made of.
    """

    values: Floats
    recalls: Floats
    matches: "dict[int, Matches]"


class Matches(NamedTuple):
    """The detections of one class, best first, and how they were matched with its true boxes."""

    image: NDArray[np.int64]  # (D,) of each detection
    hit: NDArray[np.bool_]  # (10, D)
    miss: NDArray[np.bool_]  # (10, D); neither hit nor miss is a detection of an ignored box
    truths: NDArray[np.int64]  # (N,) boxes to find on each image


def average_precision(found: Sequence[Found], truth: Sequence[Target], *, classes: int) -> Precision:
    """Detections beside true boxes, by pycocotools: greedy matching, best score first, 101 points of recall.

    Args:
        found: N, one for each image.
        truth: N; ignored boxes are crowds, in COCO's words.
        classes: C.

    Reference: Lin et al. 2014, https://arxiv.org/abs/1405.0312, and https://cocodataset.org/#detection-eval
    """
    if len(found) != len(truth) or not truth:
        raise ValueError(f"{len(found)} images with detections and {len(truth)} with boxes, expected as many of both")
    coco, evaluation = pycocotools()
    # pycocotools prints each of its steps.
    with contextlib.redirect_stdout(io.StringIO()):
        true = _dataset(coco, [(t.boxes, t.kinds, None, t.ignored) for t in truth], classes)
        seen = _dataset(coco, [(f.boxes, f.kinds, f.scores, None) for f in found], classes)
        measured = evaluation(true, seen, "bbox")
        measured.params.maxDets = [MOST]
        measured.params.areaRng, measured.params.areaRngLbl = [[0, 1e10]], ["all"]
        measured.evaluate()
        measured.accumulate()
    matches = {kind: _matches(measured.evalImgs, kind, len(truth)) for kind in range(classes)}
    values = measured.eval["precision"][:, :, :, 0, 0]
    return Precision(values, measured.params.recThrs, {k: m for k, m in matches.items() if m.truths.sum()})


def summary(precision: Precision, names: Sequence[str], *, count: int, seed: int) -> dict[str, Estimate]:
    """AP, AP50, AP75 and the AP of each class, with intervals from `count` resamples of the images."""
    if not precision.matches:
        raise ValueError("there is no box on any test image, expected some to find")
    images = len(next(iter(precision.matches.values())).truths)
    draws = [
        _resampled(precision, w.numpy())
        for weights in resamples(torch.zeros(images), count=count, seed=seed)
        for w in weights
    ]
    redrawn = np.stack(draws)  # (R, 10, classes that have boxes), NaN where a resample has none of them
    value = precision.values[:, :, list(precision.matches)].mean(1)  # (10, classes that have boxes)

    def estimate(one: float, many: Floats) -> Estimate:
        many = many[np.isfinite(many)]
        return with_interval(one, torch.from_numpy(many), images) if len(many) else Estimate(one, None, None, images)

    def mean(x: Floats, axis: tuple[int, ...]) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.nansum(x, axis) / np.isfinite(x).sum(axis))

    metrics = {
        "AP": estimate(float(value.mean()), mean(redrawn, (1, 2))),
        "AP50": estimate(float(value[FOUND].mean()), mean(redrawn[:, FOUND], (1,))),
        "AP75": estimate(float(value[FOUND_WELL].mean()), mean(redrawn[:, FOUND_WELL], (1,))),
    }
    for place, kind in enumerate(precision.matches):
        metrics[f"AP of {names[kind]}"] = estimate(float(value[:, place].mean()), redrawn[:, :, place].mean(1))
    return metrics


def weighted_precision(matches: Matches, weights: Floats, recalls: Floats) -> Floats:
    """(10, R) precision at these recalls, every image counted as often as its weight says.

    With weights of one it is pycocotools' own.
    """
    often = weights[matches.image]  # (D,)
    hits, misses = np.cumsum(matches.hit * often, 1), np.cumsum(matches.miss * often, 1)  # (10, D)
    wanted = float(weights @ matches.truths)
    precision = hits / np.maximum(hits + misses, np.spacing(1))
    precision = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]  # the best at this recall or a larger one
    out = np.zeros((len(hits), len(recalls)))
    for row, (hit, best) in enumerate(zip(hits / wanted, precision, strict=True)):
        places = np.searchsorted(hit, recalls, side="left")
        out[row, places < len(best)] = best[places[places < len(best)]]
    return out


def _resampled(precision: Precision, weights: Floats) -> Floats:
    """(10, classes that have boxes) average precision of one resample; NaN where it has no box of a class."""
    columns = []
    for matches in precision.matches.values():
        if weights @ matches.truths > 0:
            columns.append(weighted_precision(matches, weights, precision.recalls).mean(1))
        else:
            columns.append(np.full(len(precision.values), np.nan))
    return np.stack(columns, 1)


def pycocotools() -> tuple[Any, Any]:
    """Its data set and its evaluation, or a line that says what to install."""
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError:
        raise ImportError("average precision needs pycocotools: pip install 'nearfar[detection]'") from None
    return COCO, COCOeval


Column = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # boxes, kinds, scores, ignored of one image


def _dataset(coco: Any, images: Sequence[Column], classes: int) -> Any:
    """pycocotools' data set, without a file; it counts from 1, since 0 means "not matched" to it."""
    entries: list[dict[str, Any]] = []
    for image, (boxes, kinds, scores, ignored) in enumerate(images):
        for place, ((x1, y1, x2, y2), kind) in enumerate(zip(boxes.tolist(), kinds.tolist(), strict=True)):
            entry = {"id": len(entries) + 1, "image_id": image + 1, "category_id": kind + 1, "iscrowd": 0}
            entry |= {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
            if scores is not None:
                entry["score"] = float(scores[place])
            if ignored is not None:
                entry["iscrowd"] = int(ignored[place])
            entries.append(entry)
    dataset = coco()
    dataset.dataset = {
        "images": [{"id": image + 1} for image in range(len(images))],
        "categories": [{"id": kind + 1, "name": str(kind)} for kind in range(classes)],
        "annotations": entries,
    }
    dataset.createIndex()
    return dataset


def _matches(evaluated: Sequence[dict[str, Any] | None], kind: int, images: int) -> Matches:
    """What pycocotools found of a class on each image, as one list, best score first."""
    rows = evaluated[kind * images : (kind + 1) * images]  # by class, area and image; one area
    truths = np.zeros(images, np.int64)
    numbers, scores, hit, ignored = [], [], [], []
    for image, row in enumerate(rows):
        if row is not None:
            truths[image] = np.count_nonzero(np.asarray(row["gtIgnore"]) == 0)
            scores.append(np.asarray(row["dtScores"]))
            numbers.append(np.full(len(row["dtScores"]), image))
            hit.append(row["dtMatches"] > 0)
            ignored.append(row["dtIgnore"] > 0)
    if not scores:
        empty = np.zeros((10, 0), bool)
        return Matches(np.zeros(0, np.int64), empty, empty, truths)
    order = np.argsort(-np.concatenate(scores), kind="mergesort")
    matched, skipped = (np.concatenate(x, 1)[:, order] for x in (hit, ignored))
    return Matches(np.concatenate(numbers)[order], matched & ~skipped, ~matched & ~skipped, truths)
