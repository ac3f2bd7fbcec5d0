"""torchvision's FCOS or RetinaNet on an encoder: built, trained and run."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.data.loader import Loader
from nearfar.evaluation.detection.average_precision import MOST, Found
from nearfar.evaluation.detection.pyramid import GROUPS, Pyramid
from nearfar.evaluation.embedding import Encoder, Prepare, device_of
from nearfar.evaluation.finetune import rate
from nearfar.evaluation.protocols.detection import DetectionSettings
from nearfar.modalities.image.data.boxes import BoxedImages
from nearfar.nn.layers import layers
from nearfar.nn.norm import fix_statistics
from nearfar.nn.seeding import seeded_generator

from nearfar import _torchvision  # isort: skip  # noqa: F401, before torchvision
from torchvision.models import detection  # isort: skip
from torchvision.models.detection.anchor_utils import AnchorGenerator  # isort: skip
from torchvision.models.detection.retinanet import RetinaNetHead  # isort: skip
from torchvision.models.detection.transform import GeneralizedRCNNTransform  # isort: skip

SMALL = 128  # pixels: up to here the pyramid begins at stride 4, above at 8
SCALES = (0.75, 1.25)  # between which a batch's pictures are resized
WEIGHT_DECAY, CLIP = 0.05, 10.0  # of matrices and kernels; largest gradient norm
_LEAST_SCORE, _CANDIDATES = 0.05, 500  # of a detection, and how many of a level go on to the suppression of doubles


def make_detector(
    encoder: Encoder, settings: DetectionSettings, *, classes: int, largest: int, seed: int, from_scratch: bool = True
) -> tuple[nn.Module, Pyramid]:
    """A detector on a copy of an encoder, and the pyramid in it; pyramid and head are drawn from the seed.

    Args:
        encoder: a network that makes maps; ValueError where it does not.
        settings: which head, and whether the encoder is frozen.
        classes: C, numbered from 0.
        largest: pixels of the longest side of a picture.
        seed: of the initial weights.
        from_scratch: the encoder has learned nothing yet; one that has keeps its BatchNorm statistics, since a step
            sees few pictures.
    """
    if not isinstance(encoder, nn.Module):
        raise ValueError("it cannot be used for detection: it is not a torch network")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            pyramid = Pyramid(
                copy.deepcopy(encoder), finest=4 if largest <= SMALL else 8, largest=largest, frozen=settings.frozen
            )
            if not from_scratch:
                fix_statistics(pyramid.encoder)
        except ValueError as error:
            raise ValueError(f"it cannot be used for detection: {error}") from None
        options: dict[str, Any] = {
            "score_thresh": _LEAST_SCORE,
            "topk_candidates": _CANDIDATES,
            "detections_per_img": MOST,
        }
        if settings.head == "fcos":
            points = AnchorGenerator(tuple((s,) for s in pyramid.strides), ((1.0,),) * len(pyramid.strides))
            model: nn.Module = detection.FCOS(pyramid, classes, anchor_generator=points, **options)
        else:
            sizes = tuple(tuple(4 * s * 2 ** (i / 3) for i in range(3)) for s in pyramid.strides)
            anchors = AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))
            head = RetinaNetHead(pyramid.out_channels, 9, classes, norm_layer=partial(nn.GroupNorm, GROUPS))
            model = detection.RetinaNet(pyramid, classes, anchor_generator=anchors, head=head, **options)
    model.transform = _Padding(pyramid.strides[-1])
    return model.to(device_of(encoder)), pyramid


class _Padding(GeneralizedRCNNTransform):  # type: ignore[misc]
    """Images come prepared and at their size: of torchvision's transform only the batching is left."""

    def __init__(self, stride: int) -> None:
        super().__init__(1, 1, [0.0] * 3, [1.0] * 3, size_divisible=stride)

    def normalize(self, image: Tensor) -> Tensor:
        return image

    def resize(self, image: Tensor, target: dict[str, Tensor] | None = None) -> tuple[Tensor, dict[str, Tensor] | None]:
        return image, target


def train_detector(
    model: nn.Module,
    images: BoxedImages,
    settings: DetectionSettings,
    *,
    prepare: Prepare,
    seed: int,
    layer_decay: float = 1.0,
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Train for a fixed number of epochs by AdamW, the rate rising for a twentieth of them, then falling as a cosine.

    Args:
        model: in place; its device is used.
        images: ignored boxes are not learned.
        settings: epochs, rate, batch size and whether pictures may be mirrored.
        prepare: (1, 3, H, W) in [0, 1] to the encoder's input, of the same size.
        seed: of order, mirroring and scale.
        layer_decay: rate of each layer of the encoder as a fraction of that of the one above, of the last as one of the
            pyramid's and the head's.
        advance: is told of every picture.
    """
    device = device_of(model)
    loader = Loader(len(images), min(settings.batch_size, len(images)), seed, drop_last=False)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameter_groups(model, settings.lr, layer_decay))
    total = settings.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step / total))
    model.train()
    for epoch in range(settings.epochs):
        for step, rows in loader.batches(epoch):
            generator = seeded_generator(seed, epoch * len(loader) + step, 0)
            flips = torch.rand(len(rows), generator=generator) < (0.5 if settings.flip and images.mirrored else 0.0)
            factor = SCALES[0] + (SCALES[1] - SCALES[0]) * float(torch.rand((), generator=generator))
            x, targets = [], []
            for row, flip in zip(rows.tolist(), flips.tolist(), strict=True):
                truth = images.targets[row]
                picture, boxes = moved(images.picture(row).to(device), truth.boxes, flip=flip, factor=factor)
                x.append(prepare(picture[None])[0])
                targets.append(
                    {"boxes": boxes[~truth.ignored].to(device), "labels": truth.kinds[~truth.ignored].to(device)}
                )
            with torch.enable_grad():
                loss = torch.stack(list(model(x, targets).values())).sum()
                if not bool(loss.isfinite()):
                    raise ValueError(f"the loss is {loss.item()} at step {schedule.last_epoch}; lower detection.lr")
                optimizer.zero_grad()
                loss.backward()
            nn.utils.clip_grad_norm_(learned, CLIP)
            optimizer.step()
            schedule.step()
            advance(len(rows))


def parameter_groups(model: nn.Module, lr: float, layer_decay: float) -> list[dict[str, Any]]:
    """What is trained of a detector, with its rates; norms and biases do not decay."""
    encoder = model.get_submodule("backbone.encoder")
    stages = [[p for p in layer if p.requires_grad] for layer in reversed(layers(encoder))]
    below = {p for layer in stages for p in layer}
    new = [p for p in model.parameters() if p.requires_grad and p not in below]
    groups = []
    for depth, parameters in enumerate([new, *stages]):
        for wanted, decay in ((True, WEIGHT_DECAY), (False, 0.0)):
            some = [p for p in parameters if (p.ndim > 1) == wanted]
            if some:
                groups.append({"params": some, "lr": lr * layer_decay**depth, "weight_decay": decay})
    return groups


def moved(picture: Tensor, boxes: Tensor, *, flip: bool, factor: float) -> tuple[Tensor, Tensor]:
    """A picture resized by a factor, and mirrored if so asked, with its boxes.

    Args:
        picture: (3, H, W) uint8.
        boxes: (K, 4) in its pixels.

    Returns:
        (3, H', W') float32 in [0, 1], and (K, 4) in its pixels.

    >>> moved(torch.zeros(3, 10, 20, dtype=torch.uint8), torch.tensor([[0.0, 1, 5, 9]]), flip=True, factor=1.0)[1]
    tensor([[15.,  1., 20.,  9.]])
    """
    _, height, width = picture.shape
    x = picture / 255
    size = max(1, round(factor * height)), max(1, round(factor * width))
    if size != (height, width):
        x = F.interpolate(x[None], size=size, mode="bilinear", align_corners=False, antialias=factor < 1)[0]
    boxes = boxes * torch.tensor([size[1] / width, size[0] / height]).repeat(2)
    if flip:
        x, boxes = x.flip(2), torch.stack([size[1] - boxes[:, 2], boxes[:, 1], size[1] - boxes[:, 0], boxes[:, 3]], 1)
    return x, boxes


@torch.no_grad()
def detect(
    model: nn.Module,
    images: BoxedImages,
    *,
    prepare: Prepare,
    batch_size: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Found]:
    """What a detector sees on each picture, best first, on the CPU."""
    device, found = device_of(model), []
    model.eval()
    for rows in torch.arange(len(images)).split(batch_size):
        x = [prepare(images.picture(row).to(device)[None])[0] for row in rows.tolist()]
        found += [Found(seen["boxes"].cpu(), seen["labels"].cpu(), seen["scores"].cpu()) for seen in model(x)]
        advance(len(rows))
    return found
