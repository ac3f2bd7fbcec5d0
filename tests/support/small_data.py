"""Small data under the names that the docs use, made on the spot."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from tests.support.boxes import write_voc
from tests.support.sounds import recordings

COLORS = {"red": (220, 40, 40), "blue": (40, 60, 220)}
SHAPES = ("car", "ball")


def picture(color: str, shape: str, seed: int, side: int = 40) -> Image.Image:
    """A car or a ball of that colour, somewhere on noise."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(90, 200, (side, side, 3), np.uint8))
    x, y = (int(v) for v in rng.integers(2, side - 18, 2))
    draw = ImageDraw.Draw(image)
    if shape == "car":
        draw.rectangle((x, y + 6, x + 15, y + 12), fill=COLORS[color])
    else:
        draw.ellipse((x, y, x + 14, y + 14), fill=COLORS[color])
    return image


def pictures(folder: Path, count: int, first: int = 0) -> list[tuple[str, str]]:
    """Pictures in a folder for each shape; the path and the caption of each."""
    made = []
    for number in range(first, first + count):
        shape, color = SHAPES[number % 2], ("red", "blue")[number // 2 % 2]
        file = folder / shape / f"{number:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture(color, shape, number).save(file)
        made.append((f"{shape}/{file.name}", f"a {color} {shape}, number {number}"))
    return made


def write_small_data(folder: Path) -> Path:
    """All of it."""
    shown = pictures(folder / "photos", 96)
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "caption"), *((f"photos/{path}", text) for path, text in shown)])
    pictures(folder / "labelled" / "train", 40, first=100)
    pictures(folder / "labelled" / "test", 24, first=200)
    pictures(folder / "test", 16, first=300)
    for name in ("query.jpg", "q.jpg"):
        picture("red", "car", 7).save(folder / name)
    made = recordings(folder / "recordings", words=3, speakers=4, takes=8)
    for file in sorted(made.iterdir()):
        file.rename(file.with_name(file.name.replace("_cem_", "_theo_").replace("_dee_", "_george_")))
    for name in ("query.wav", "a.wav"):
        (folder / name).write_bytes((made / "1_ann_0.wav").read_bytes())
    _texts(folder)
    _series(folder)
    write_voc(folder / "cells" / "train", 6, seed=0)
    write_voc(folder / "cells" / "test", 4, seed=1)
    (folder / "mymodule.py").write_text("from nearfar.methods import SimCLR as MyMethod  # noqa: F401\n")
    (folder / "recipes").symlink_to(Path(__file__).parents[2] / "recipes")
    return folder


def _texts(folder: Path) -> None:
    verbs, things = ("reset", "find", "order", "return", "paint"), ("phone", "lamp", "boat", "key", "coat", "book")
    said = [
        f"how do i {verb} my {thing} {when}" for verb in verbs for thing in things for when in ("now", "today", "again")
    ]
    (folder / "sentences.txt").write_text("\n".join(said) + "\n")
    for name, rows in (("train", said[:60]), ("test", said[60:])):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *((text, text.split()[5]) for text in rows)])
    with (folder / "questions.csv").open("w", newline="") as file:
        answers = [(text, f"to {text.split()[3]} a {text.split()[5]}, {text.split()[6]}") for text in said]
        csv.writer(file).writerows([("anchor", "positive"), *answers])
    pairs = [(a, b, str(i % 6)) for i, (a, b) in enumerate(zip(said, reversed(said), strict=True))]
    (folder / "stsb").mkdir()
    for name in ("train", "test"):
        with (folder / "stsb" / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("sentence1", "sentence2", "score"), *pairs])


def _series(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for part in ("TRAIN", "TEST"):
        labels = np.arange(40) % 2
        steps = np.sin(np.linspace(0, 6, 32) * (1 + labels[:, None])) + 0.1 * rng.standard_normal((40, 32))
        np.savetxt(folder / f"ECG200_{part}.tsv", np.column_stack([labels + 1, steps]), fmt="%.4f", delimiter="\t")
