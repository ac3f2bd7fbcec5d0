"""Pictures with boxes around what is on them, cleaned: every box lies in its picture, every fault is counted."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from rich.progress import track
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.modalities.image.data.annotations import Annotated, Annotations, Faults, Reader, find_annotations
from nearfar.modalities.image.data.decode import opened, rgb, why
from nearfar.modalities.image.data.glyphs import Split, glyph_scenes

IN_MEMORY = 2 << 30  # bytes of decoded pictures that are kept; the rest is decoded at every look
SCENES = 1000  # of "glyph-scenes"
_LEAST = 0.01  # pixels: a thinner box has no area
_ORIENTATION, _LYING = 0x0112, (5, 6, 7, 8)  # EXIF's tag, and its values that turn a picture on its side


class Target(NamedTuple):
    """What is on a picture."""

    boxes: Tensor  # (K, 4) float32, x1, y1, x2, y2 in pixels of the stored picture
    kinds: Tensor  # (K,) int64, numbers of classes
    ignored: Tensor  # (K,) bool: neither learned nor counted


class BoxedImages(Dataset):
    """Numbered pictures of any shape with boxes. To who asks for images alone, a data set without labels.

    Args:
        pictures: N of (H, W, 3) uint8, or files to decode at every look.
        targets: N.
        classes: names of the kinds of boxes.
        names: N texts that say where each picture came from.
        shapes: (N, 2) height and width of the stored pictures.
        mirrored: whether a mirrored picture could be one of them, too; letters could not.
    """

    boxed = True
    columns = ("pictures", "targets", "shapes")
    classes: list[str]

    def __init__(
        self,
        pictures: Sequence[NDArray[np.uint8] | Annotated],
        targets: Sequence[Target],
        *,
        classes: Sequence[str],
        names: Sequence[str],
        shapes: Tensor,
        mirrored: bool = True,
    ) -> None:
        self.pictures, self.targets = list(pictures), list(targets)
        self.classes, self.names, self.shapes, self.mirrored = list(classes), list(names), shapes, mirrored

    @property
    def size(self) -> int:  # type: ignore[override]
        return int(self.shapes.max()) if len(self.shapes) else 0

    def __len__(self) -> int:
        return len(self.pictures)

    def picture(self, index: int) -> Tensor:
        """(3, H, W) uint8."""
        stored = self.pictures[index]
        if isinstance(stored, Annotated):
            stored = fitted(stored, int(self.shapes[index].max()))[0]
        return torch.from_numpy(stored).permute(2, 0, 1)

    def fetch(self, indices: Tensor) -> Tensor:
        """(B,) int64 to (B, 3, S, S) uint8, black to the right of and below each picture."""
        images = torch.zeros(len(indices), 3, self.size, self.size, dtype=torch.uint8)
        for image, index in zip(images, indices.tolist(), strict=True):
            x = self.picture(index)
            image[:, : x.shape[1], : x.shape[2]] = x
        return images


def find_boxes(spec: str | Path, *, seed: int = 0) -> dict[str, Reader]:
    """As `find_annotations`, and "glyph-scenes" or "glyph-scenes:200" (a fifth as many in the test part)."""
    made = re.fullmatch(r"glyphs?-scenes(?::(\d+))?", str(spec))
    if made is None:
        return find_annotations(spec)
    n = int(made[1] or SCENES)
    return {"train": lambda: _scenes(n, seed, "train"), "test": lambda: _scenes(max(n // 5, 1), seed, "test")}


def _scenes(n: int, seed: int, split: Split) -> Annotations:
    scenes = glyph_scenes(n, seed=seed, split=split)
    pictures = []
    for i, (boxes, labels) in enumerate(zip(scenes.boxes, scenes.labels, strict=True)):
        stated = [(x1, y1, x2, y2) for x1, y1, x2, y2 in boxes.tolist()]
        kinds = [scenes.classes[label] for label in labels.tolist()]
        pictures.append(Annotated(str(i), scenes.dataset.images[i], stated, kinds, [False] * len(kinds)))
    return Annotations(pictures, scenes.classes, mirrored=False)


def boxed_images(
    stated: Annotations,
    *,
    size: int,
    classes: Sequence[str] | None = None,
    in_memory: int = IN_MEMORY,
    progress: bool = False,
) -> tuple[BoxedImages, Faults]:
    """Decode and clean what was read. Pictures without boxes stay, as negatives; what cannot be used is counted.

    Args:
        stated: what was read.
        size: most pixels of a picture's longer side; larger ones are made smaller, none larger.
        classes: those to know, such as the training part's; None: those of which there is a box to learn from.
        in_memory: bytes of pictures that are kept.
        progress: show a bar.
    """
    faults = Faults(dict(stated.faults.found))
    declared = list(stated.classes if classes is None else classes)
    pictures: list[NDArray[np.uint8] | Annotated] = []
    targets, names, shapes, held = [], [], [], 0
    for entry in track(stated.pictures, "reading pictures", disable=not progress, transient=True):
        try:
            pixels, (width, height) = fitted(entry, size)
        except Exception as error:  # Pillow raises many kinds
            faults.add("images that cannot be read, left out", f"{entry.name}: {why(error)}")
            continue
        if entry.size is not None and entry.size != (width, height):
            faults.add("images of another size than is stated, their boxes taken as they stand", entry.name)
        target = _target(entry, (width, height), declared, faults)
        scale = torch.tensor([pixels.shape[1] / width, pixels.shape[0] / height]).repeat(2)
        targets.append(target._replace(boxes=target.boxes * scale))
        names.append(entry.name)
        shapes.append(pixels.shape[:2])
        held += pixels.nbytes
        pictures.append(pixels if held <= in_memory else entry)
    if classes is None:
        targets, declared = _learned(targets, declared)
    sizes = torch.tensor(shapes, dtype=torch.long).reshape(-1, 2)
    return BoxedImages(pictures, targets, classes=declared, names=names, shapes=sizes, mirrored=stated.mirrored), faults


def _target(entry: Annotated, size: tuple[int, int], classes: Sequence[str], faults: Faults) -> Target:
    """The boxes of a picture that can be used, of these classes."""
    boxes, usable = clean(entry, *size, faults)
    numbers = {name: number for number, name in enumerate(classes)}
    kinds = torch.tensor([numbers.get(kind, -1) for kind in entry.kinds], dtype=torch.long)
    for place in (usable & (kinds < 0)).nonzero()[:, 0].tolist():
        faults.add("boxes of a class without training boxes, left out", f"{entry.kinds[place]} in {entry.name}")
    usable &= kinds >= 0
    if not usable.any():
        faults.add("images without a box, kept as negatives", entry.name)
    return Target(boxes[usable], kinds[usable], torch.tensor(entry.ignored, dtype=torch.bool)[usable])


def _learned(targets: Sequence[Target], classes: Sequence[str]) -> tuple[list[Target], list[str]]:
    """Without the classes of which there is no box to learn from, the others numbered anew."""
    there = torch.zeros(len(classes), dtype=torch.bool)
    for target in targets:
        there[target.kinds[~target.ignored]] = True
    numbers = there.cumsum(0) - 1
    kept = [Target(*(x[there[target.kinds]] for x in target)) for target in targets]
    names = [name for name, some in zip(classes, there.tolist(), strict=True) if some]
    return [target._replace(kinds=numbers[target.kinds]) for target in kept], names


def clean(entry: Annotated, width: int, height: int, faults: Faults) -> tuple[Tensor, Tensor]:
    """(K, 4) boxes inside the picture, and (K,) which of them can be used."""
    boxes = torch.tensor(entry.boxes, dtype=torch.float32).reshape(-1, 4)
    sides = torch.tensor([width, height], dtype=torch.float32).repeat(2)
    numbers = boxes.isfinite().all(1)
    area = numbers & ((boxes[:, 2:] - boxes[:, :2]) >= _LEAST).all(1)
    inside = boxes.nan_to_num().clamp(min=torch.zeros(4), max=sides)
    usable = area & ((inside[:, 2:] - inside[:, :2]) >= _LEAST).all(1)
    for what, which in (
        ("boxes that are not four numbers, dropped", ~numbers),
        ("boxes without area, dropped", numbers & ~area),
        ("boxes outside their image, dropped", area & ~usable),
        ("boxes that reach out of their image, clipped", usable & (inside != boxes).any(1)),
    ):
        for _ in range(int(which.sum())):
            faults.add(what, entry.name)
    return inside, usable


def fitted(entry: Annotated, size: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """(H, W, 3) with a longer side of at most `size`, and width and height before that.

    A picture is set upright as its camera says, unless its stated size is that of the picture as it lies in the file:
    then its boxes were drawn there.
    """
    if isinstance(entry.picture, np.ndarray):
        return _shrunk(Image.fromarray(entry.picture), size)
    with opened(entry.picture) as image:
        lying = image.getexif().get(_ORIENTATION) in _LYING and entry.size == image.size
        return _shrunk(rgb(image if lying else ImageOps.exif_transpose(image)), size)


def _shrunk(image: Image.Image, size: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    full = image.size
    factor = size / max(full)
    if factor < 1:
        smaller = max(1, round(full[0] * factor)), max(1, round(full[1] * factor))
        image = image.resize(smaller, Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.array(image, np.uint8), full
