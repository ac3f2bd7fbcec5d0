"""Object detection: a detector on the encoder, trained on boxes. On the untrained encoder: the same from scratch."""

import numpy as np
import torch
from torch import Tensor

from nearfar.evaluation.detection.average_precision import (
    FOUND,
    Found,
    Precision,
    average_precision,
    pycocotools,
    summary,
)
from nearfar.evaluation.embedding import progress_bar
from nearfar.evaluation.task import Curves, Outcome, Task
from nearfar.modalities.image.data.boxes import BoxedImages

SHOWN = 6  # test pictures that are drawn
SURE = 0.3  # score of a box that is drawn
ONE_PLACE = 0.5  # overlap of boxes of which the best alone is drawn, whatever their classes
MANY = 12  # classes of which no rows of their own are given


def detection(task: Task, seed: int) -> Outcome:
    """AP, AP50 and AP75 on the test pictures after a fixed number of epochs; nothing is chosen on them.

    The seed draws pyramid, head, order and augmentation. The encoder that it starts from is the same for all seeds,
    the untrained one too.
    """
    from nearfar.evaluation.detection.detector import (  # torchvision's models take a second
        detect,
        make_detector,
        train_detector,
    )

    pycocotools()  # before the training, not after it
    settings, train, test = task.settings.detection, task.train.boxed, task.test.boxed
    classes = train.classes
    model, _ = make_detector(
        task.encoder, settings, classes=len(classes), largest=max(train.size, test.size), seed=seed
    )
    if task.device is not None:
        model.to(task.device)
    total = settings.epochs * len(train) + len(test)
    with progress_bar(task.progress and f"{task.name}: detector, seed {seed}", total) as advance:
        train_detector(model, train, settings, prepare=task.prepare, seed=seed, advance=advance)
        found = detect(model, test, prepare=task.prepare, batch_size=settings.batch_size, advance=advance)
    precision = average_precision(found, test.targets, classes=len(classes))
    metrics = summary(precision, classes, count=task.settings.resamples, seed=seed)
    if len(classes) > MANY:
        metrics = {name: metrics[name] for name in ("AP", "AP50", "AP75")}
    return Outcome(metrics, _curves(precision, classes) | _examples(test, found))


def _curves(precision: Precision, classes: list[str]) -> Curves:
    known = list(precision.matches)
    values = precision.values[:, :, known]  # (10, 101, classes that have test boxes)
    return {
        "pr": values[FOUND].T,  # at an overlap of 0.5
        "grid": precision.recalls,
        "class_ap": values.mean((0, 1)),
        "class_names": np.array([classes[kind] for kind in known]),
    }


def _examples(test: BoxedImages, found: list[Found]) -> Curves:
    """Some pictures side by side, with the true boxes and those that were found: picture, class, x1, y1, x2, y2."""
    from nearfar._torchvision import nms

    rows = torch.linspace(0, len(test) - 1, min(SHOWN, len(test))).round().long()
    true, seen = [], []
    for place, row in enumerate(rows.tolist()):
        target, own = test.targets[row], found[row]
        true.append(_numbered(place, target.kinds, target.boxes))
        shown = nms(own.boxes, own.scores, ONE_PLACE)
        shown = shown[own.scores[shown] >= SURE]
        seen.append(
            torch.cat([_numbered(place, own.kinds[shown], own.boxes[shown]), own.scores[shown, None]], 1)  # (D, 7)
        )
    return {
        "pictures": test.fetch(rows).permute(0, 2, 3, 1).numpy(),
        "picture_shapes": test.shapes[rows].numpy(),
        "true_boxes": torch.cat(true).numpy(),
        "found_boxes": torch.cat(seen).numpy(),  # and the score
        "classes": np.array(test.classes),
    }


def _numbered(place: int, kinds: Tensor, boxes: Tensor) -> Tensor:
    """(K, 6): place, class, box."""
    return torch.cat([torch.full((len(boxes), 1), float(place)), kinds[:, None].float(), boxes], 1)
