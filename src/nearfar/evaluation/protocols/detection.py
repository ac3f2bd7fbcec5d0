"""Object detection: a detector on the encoder, trained on boxes. On the untrained encoder: the same from scratch."""

from dataclasses import dataclass
from typing import Literal

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
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Curves, Outcome, Task
from nearfar.modalities.image.data.boxes import BoxedImages
from nearfar.progress import progress_bar
from nearfar.settings import setting

SHOWN = 6  # test images that are drawn
SURE = 0.3  # score of a box that is drawn
ONE_PLACE = 0.5  # overlap of boxes above which only the best is drawn
MANY = 12  # classes: beyond, no class has rows of its own


@dataclass(frozen=True)
class DetectionSettings:
    """Protocol detection: a detector on the encoder, trained on boxes."""

    head: Literal["fcos", "retinanet"] = setting("fcos", "the detector", choices=("fcos", "retinanet"))
    size: int = setting(256, "longer side of an image in pixels, at most; smaller images stay as they are", least=32)
    epochs: int = setting(30, "epochs; there is no early stopping", least=1)
    lr: float = setting(5e-4, "learning rate of AdamW", above=0, below=1)
    layer_decay: float = setting(
        0.75,
        "with a pretrained encoder: learning rate of each layer as a fraction of the next one's",
        above=0,
        most=1,
    )
    batch_size: int = setting(8, "images per step", least=1)
    frozen: bool = setting(False, "train pyramid and head only")
    flip: bool = setting(True, "mirror half of the training images; glyph scenes are never mirrored")


def detection(task: Task, settings: DetectionSettings, seed: int) -> Outcome:
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
    train, test = task.train.boxed, task.test.boxed
    classes = train.classes
    scratch = task.embedder.from_scratch
    model, _ = make_detector(
        task.encoder,
        settings,
        classes=len(classes),
        largest=max(train.size, test.size),
        seed=seed,
        from_scratch=scratch,
    )
    if task.compute.device is not None:
        model.to(task.compute.device)
    total = settings.epochs * len(train) + len(test)
    with progress_bar(task.progress(f"detector, seed {seed}"), total) as advance:
        train_detector(
            model,
            train,
            settings,
            prepare=task.embedder.prepare,
            seed=seed,
            layer_decay=1.0 if scratch else settings.layer_decay,
            advance=advance,
        )
        found = detect(model, test, prepare=task.embedder.prepare, batch_size=settings.batch_size, advance=advance)
    precision = average_precision(found, test.targets, classes=len(classes))
    metrics = summary(precision, classes, count=task.bootstrap, seed=seed)
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
    """Some test images with true and detected boxes: image, class, x1, y1, x2, y2."""
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


PROTOCOL = Protocol(
    "detection",
    detection,
    "a detector on boxes: AP, AP50, AP75",
    "AP",
    DetectionSettings,
    needs="boxes",
    seeded=True,
    shows_progress=True,
    title="A detector",
)
