"""Small data with boxes, written as VOC and COCO files, with and without faults."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Box = tuple[str, float, float, float, float]  # class, x1, y1, x2, y2


def blocks(n: int, seed: int, *, width: int = 64, height: int = 64) -> tuple[list[NDArray[np.uint8]], list[list[Box]]]:
    """Noisy pictures of one or two bright red or blue blocks, and their boxes."""
    generator = np.random.default_rng(seed)
    pictures, boxes = [], []
    for _ in range(n):
        picture = generator.integers(0, 60, (height, width, 3), dtype=np.uint8)
        own: list[Box] = []
        for k in range(int(generator.integers(1, 3))):
            w, h = generator.integers(12, 24, 2)
            x = int(generator.integers(0, width // 2 - w)) + k * width // 2
            y = int(generator.integers(0, height - h))
            kind = int(generator.integers(2))
            picture[y : y + h, x : x + w, 2 * kind] = 230
            own.append((("red", "blue")[kind], x, y, x + int(w), y + int(h)))
        pictures.append(picture)
        boxes.append(own)
    return pictures, boxes


def xml(name: str, boxes: Sequence[Box], size: tuple[int, int] = (64, 64), extra: str = "") -> str:
    objects = "".join(
        f"<object><name>{kind}</name>{extra}<bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax>"
        f"<ymax>{y2}</ymax></bndbox></object>"
        for kind, x1, y1, x2, y2 in boxes
    )
    width, height = size
    return (
        f"<annotation><filename>{name}</filename><size><width>{width}</width><height>{height}</height></size>"
        f"{objects}</annotation>"
    )


def write_voc(folder: Path, n: int, seed: int) -> None:
    """XML files beside their images."""
    folder.mkdir(parents=True)
    for i, (picture, boxes) in enumerate(zip(*blocks(n, seed), strict=True)):
        Image.fromarray(picture).save(folder / f"{i}.png")
        (folder / f"{i}.xml").write_text(xml(f"{i}.png", boxes))


def coco(names: Sequence[str], boxes: Sequence[Sequence[Box]], classes: Sequence[str] = ("blue", "red")) -> str:
    """A JSON file; numbers of images and classes do not begin with 0."""
    images = [{"id": 10 + i, "file_name": name, "width": 64, "height": 64} for i, name in enumerate(names)]
    annotations = [
        {"id": 0, "image_id": 10 + i, "category_id": 5 + classes.index(kind), "bbox": [x1, y1, x2 - x1, y2 - y1]}
        for i, own in enumerate(boxes)
        for kind, x1, y1, x2, y2 in own
    ]
    categories = [{"id": 5 + i, "name": name} for i, name in enumerate(classes)]
    return json.dumps({"images": images, "annotations": annotations, "categories": categories})


def write_coco(folder: Path, n: int, seed: int, file: str = "_annotations.coco.json") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pictures, boxes = blocks(n, seed)
    names = [f"{i}.png" for i in range(n)]
    for name, picture in zip(names, pictures, strict=True):
        Image.fromarray(picture).save(folder / name)
    (folder / file).write_text(coco(names, boxes))
