"""Sets of pictures in which it is known what matters: colors, shapes, or the side that is up.

    .venv/bin/python benchmarks/made_pictures.py --clothes clothing_small --fashion fashion_mnist --photos cifar10
        --to made

Each is written as `train/` and `test/` with a folder for each class, 32 pixels but for the tinted clothes:

| set | what the class is | what differs by chance |
|---|---|---|
| tinted | garment, photographs of which are tinted by class, not quite alike | |
| flowers | number of petals (5 or 8) and hue (6) | place, size, angle, light, ground |
| recolored | garment of Fashion-MNIST | color of the garment and of the ground |
| wares | garment of Fashion-MNIST and one of its two hues | ground |
| signs | shape and color (8 of both), on photographs | size, place, marks |
| cars | garment of Fashion-MNIST, on photographs | one of six colors |
| letters | letter from a to z | font, size, place, shear; black on white |
"""

import argparse
import colorsys
import math
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIZE, SMOOTH = 32, 4  # drawn so many times larger
COUNTS = {"train": 3000, "test": 1000}
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "DejaVuSansMono",
    "STIXGeneral",
    "cmss10",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clothes", type=Path, required=True)
    parser.add_argument("--fashion", type=Path, required=True)
    parser.add_argument("--photos", type=Path, required=True, help="grounds of signs and cars")
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    for number, part in enumerate(COUNTS):
        rng = np.random.default_rng(number)
        tinted(options.clothes / part, options.to / "tinted" / part, rng)
        recolored(options.fashion / part, options.to / "recolored" / part, COUNTS[part], rng)
        wares(options.fashion / part, options.to / "wares" / part, COUNTS[part], rng)
        grounds = sorted((options.photos / part).glob("*/*"))
        signs(grounds, options.to / "signs" / part, COUNTS[part] // 2, rng)
        cars(options.fashion / part, grounds, options.to / "cars" / part, COUNTS[part], rng)
        for name, draw, classes in (("flowers", flower, 12), ("letters", letter, 26)):
            for index in range(COUNTS[part]):
                kind = index % classes
                save(draw(kind, rng), options.to / name / part / f"{kind:02d}" / f"{index:04d}.png")


def save(picture: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def rgb(hue: float, saturation: float, value: float) -> tuple[int, int, int]:
    r, g, b = colorsys.hsv_to_rgb(hue % 1, saturation, value)
    return round(255 * r), round(255 * g), round(255 * b)


def tinted(source: Path, to: Path, rng: np.random.Generator) -> None:
    classes = sorted(each for each in source.iterdir() if each.is_dir())
    for number, folder in enumerate(classes):
        for path in sorted(folder.iterdir()):
            x = np.asarray(Image.open(path).convert("RGB"), dtype=float)
            color = np.array(rgb(number / len(classes) + rng.normal(0, 0.03), 0.6, 1.0)) / 255
            mixed = 0.5 * x + 0.5 * x.mean(2, keepdims=True) * color
            save(Image.fromarray(mixed.astype(np.uint8)), to / folder.name / f"{path.stem}.png")


def recolored(source: Path, to: Path, count: int, rng: np.random.Generator) -> None:
    paths = sorted(source.glob("*/*"))
    for index in rng.permutation(len(paths))[:count]:
        x = np.asarray(Image.open(paths[index]).convert("L").resize((SIZE, SIZE)), dtype=float)[..., None] / 255
        garment, ground = (
            np.array(rgb(rng.random(), rng.uniform(0.3, 1), light)) for light in (1.0, rng.uniform(0, 0.5))
        )
        mixed = x * garment + (1 - x) * ground
        save(Image.fromarray(mixed.astype(np.uint8)), to / paths[index].parent.name / f"{paths[index].stem}.png")


def wares(source: Path, to: Path, count: int, rng: np.random.Generator) -> None:
    paths = sorted(source.glob("*/*"))
    garments = sorted({path.parent.name for path in paths})
    for index in rng.permutation(len(paths))[:count]:
        garment, second = paths[index].parent.name, int(rng.integers(2))
        hue = garments.index(garment) / 10 + 0.37 * second + rng.normal(0, 0.02)
        x = np.asarray(Image.open(paths[index]).convert("L").resize((SIZE, SIZE)), dtype=float)[..., None] / 255
        color, ground = rgb(hue, rng.uniform(0.5, 1), 1), rgb(rng.random(), rng.uniform(0, 0.6), rng.uniform(0, 0.5))
        mixed = x * np.array(color) + (1 - x) * np.array(ground)
        save(Image.fromarray(mixed.astype(np.uint8)), to / f"{garment}-{second}" / f"{paths[index].stem}.png")


def signs(grounds: list[Path], to: Path, count: int, rng: np.random.Generator) -> None:
    kinds = ((40, 0.0), (40, 0.6), (40, 0.14), (3, 0.0), (3, 0.35), (4, 0.6), (4, None), (8, 0.14))  # corners, hue
    side = SIZE * SMOOTH
    for index in range(count):
        kind = int(rng.integers(len(kinds)))
        corners, hue = kinds[kind]
        picture = Image.open(grounds[rng.integers(len(grounds))]).convert("RGB").resize((side, side))
        draw, r = ImageDraw.Draw(picture), side * rng.uniform(0.2, 0.42)
        (x, y), turn = side * rng.uniform(0.4, 0.6, 2), rng.normal(0, 0.1)
        saturation = 0.1 if hue is None else rng.uniform(0.6, 1)
        color = rgb((hue or 0.0) + rng.normal(0, 0.02), saturation, rng.uniform(0.5, 1))
        angles = turn + math.tau * np.arange(corners) / corners
        draw.polygon([(x + r * math.cos(angle), y + r * math.sin(angle)) for angle in angles], fill=color)
        for _ in range(3):
            a, b = x + r * rng.uniform(-0.4, 0.4), y + r * rng.uniform(-0.4, 0.4)
            draw.rectangle((a - 6, b - 6, a + 6, b + 6), fill=rgb(0, 0, rng.random()))
        save(picture.resize((SIZE, SIZE), Image.Resampling.BOX), to / str(kind) / f"{index}.png")


def cars(source: Path, grounds: list[Path], to: Path, count: int, rng: np.random.Generator) -> None:
    palette = ((200, 30, 30), (30, 50, 180), (230, 230, 230), (25, 25, 25), (150, 150, 155), (200, 160, 40))
    paths = sorted(source.glob("*/*"))
    for index in rng.permutation(len(paths))[:count]:
        x = np.asarray(Image.open(paths[index]).convert("L").resize((SIZE, SIZE)), dtype=float)[..., None] / 255
        ground = Image.open(grounds[rng.integers(len(grounds))]).convert("RGB").resize((SIZE, SIZE))
        color, solid = np.array(palette[rng.integers(6)]) * rng.uniform(0.8, 1.1), (4 * x).clip(0, 1)
        mixed = solid * (0.6 * x + 0.4) * color + (1 - solid) * np.asarray(ground, dtype=float)
        picture = Image.fromarray(mixed.clip(0, 255).astype(np.uint8))
        save(picture, to / paths[index].parent.name / f"{paths[index].stem}.png")


def flower(kind: int, rng: np.random.Generator) -> Image.Image:
    petals, hue = (5, 8)[kind % 2], (kind // 2) / 6 + rng.normal(0, 0.03)
    side, light = SIZE * SMOOTH, rng.uniform(0.5, 1)
    picture = Image.new("RGB", (side, side), rgb(rng.normal(0.3, 0.04), rng.uniform(0.3, 0.8), rng.uniform(0.15, 0.5)))
    draw = ImageDraw.Draw(picture)
    for _ in range(25):  # leaves
        x, y, r = rng.uniform(0, side), rng.uniform(0, side), rng.uniform(4, 30)
        leaf = rgb(rng.normal(0.3, 0.05), rng.uniform(0.3, 0.8), rng.uniform(0.1, 0.6))
        draw.ellipse((x - r, y - r / 2, x + r, y + r / 2), fill=leaf)
    radius, turn = side * rng.uniform(0.15, 0.24), rng.uniform(0, math.tau)
    x, y = side * rng.uniform(0.4, 0.6, 2)
    for petal in range(petals):
        angle = turn + math.tau * petal / petals
        px, py = x + radius * math.cos(angle), y + radius * math.sin(angle)
        r = radius * (0.65 if petals == 5 else 0.42)
        shade = rgb(hue, rng.uniform(0.7, 0.95), light * rng.uniform(0.8, 1))
        draw.ellipse((px - r, py - r, px + r, py + r), fill=shade)
    r = radius * 0.35
    draw.ellipse((x - r, y - r, x + r, y + r), fill=rgb(rng.uniform(0.08, 0.16), 0.8, light))
    x = np.asarray(picture.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=float) + rng.normal(0, 6, (SIZE, SIZE, 3))
    return Image.fromarray(x.clip(0, 255).astype(np.uint8))


def letter(kind: int, rng: np.random.Generator) -> Image.Image:
    side = SIZE * SMOOTH
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    font = ImageFont.truetype(str(folder / f"{rng.choice(FONTS)}.ttf"), int(side * rng.uniform(0.45, 0.75)))
    picture = Image.new("L", (side, side), 255)
    where = tuple(side * (0.5 + rng.uniform(-0.12, 0.12, 2)))
    ImageDraw.Draw(picture).text(where, chr(ord("a") + kind), fill=0, font=font, anchor="mm")
    a, b = 1 + rng.normal(0, 0.05), rng.normal(0, 0.12)  # sheared about the middle
    middle = side / 2
    picture = picture.transform(
        picture.size, Image.Transform.AFFINE, (a, b, middle * (1 - a - b), 0, 1, 0), fillcolor=255
    )
    x = np.asarray(picture.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=float) + rng.normal(0, 8, (SIZE, SIZE))
    return Image.fromarray(x.clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    main()
