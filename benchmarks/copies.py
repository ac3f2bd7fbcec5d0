"""Copies planted among photos: how many `nearfar doctor` finds, and how many of what it finds are copies.

python benchmarks/copies.py FOLDER
"""

import io
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw

from nearfar.doctor import examine
from nearfar.modalities.image.data.opening import find_images

SETS = ((0, 28), (1, 28), (2, 206), (3, 1200))  # seed, photos
SIDE = 300  # pixels at most of a photo


def encoded(photo: Image.Image, quality: int = 90) -> bytes:
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=quality)
    return file.getvalue()


def cropped(photo: Image.Image, part: float) -> Image.Image:
    """So much cut off each side."""
    w, h = photo.size
    return photo.crop((int(w * part), int(h * part), int(w * (1 - part)), int(h * (1 - part))))


def marked(photo: Image.Image) -> Image.Image:
    photo = photo.copy()
    place, size = (photo.width * 0.5, photo.height * 0.85), max(8, photo.height // 14)
    ImageDraw.Draw(photo).text(place, "(c) example photo", fill="white", font_size=size)
    return photo


COPIES: dict[str, Callable[[Image.Image], bytes]] = {
    "re-encoded": lambda photo: encoded(photo, 40),
    "half size": lambda photo: encoded(photo.resize((photo.width // 2, photo.height // 2))),
    "watermark": lambda photo: encoded(marked(photo)),
    "2 % cut": lambda photo: encoded(cropped(photo, 0.02)),
    "5 % cut": lambda photo: encoded(cropped(photo, 0.05)),
}


def measure(files: list[Path], seed: int, count: int) -> str:
    planted, hit = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(random.Random(seed).sample(files, count)):
            photo = Image.open(file).convert("RGB")
            photo.thumbnail((SIDE, SIDE))
            photo.save(Path(folder, f"{number}_photo.png"))
            if number % 4 == 0:
                kind = list(COPIES)[number // 4 % len(COPIES)]
                Path(folder, f"{number}_{kind}.jpg").write_bytes(COPIES[kind](photo))
                planted[kind] += 1
        found = examine(find_images(folder), progress=False)
    groups: dict[int, list[str]] = {}
    for name, group in zip(found.names, found.groups.tolist(), strict=True):
        groups.setdefault(group, []).append(Path(name).stem)
    pairs = [(a, b) for names in groups.values() for i, a in enumerate(names) for b in names[i + 1 :]]
    true = [pair for pair in pairs if pair[0].split("_")[0] == pair[1].split("_")[0]]
    hit.update(next(kind for kind in (name.split("_")[1] for name in pair) if kind != "photo") for pair in true)
    kinds = ", ".join(f"{kind} {hit[kind]} of {planted[kind]}" for kind in COPIES)
    return f"{count} photos, seed {seed}: {len(pairs)} pairs, {len(true)} true; {kinds}"


if __name__ == "__main__":
    suffixes = (".jpg", ".jpeg", ".png")
    photos = sorted(path for path in Path(sys.argv[1]).rglob("*") if path.suffix.lower() in suffixes)
    for seed, count in SETS:
        print(measure(photos, seed, count), flush=True)
