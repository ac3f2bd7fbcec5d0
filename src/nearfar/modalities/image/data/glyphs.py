"""Built-in data made by code: letters in many fonts, colours, sizes and places, with labels, captions and boxes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import PIL
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.cache import cached_array
from nearfar.data.dataset import ArrayDataset
from nearfar.modalities.image.data.letters import CANVAS, CAP_HEIGHT, LETTERS, TEST_FONTS, TRAIN_FONTS, masks, palette

Split = Literal["train", "test"]
Floats = NDArray[np.float64]

SIZE = 32
BLOCK = 1024  # samples drawn from one generator; row i of a block is the same however many rows follow it
CLUTTER = 3  # a stroke and two specks behind the letter
BASE_DRAWS, CLUTTER_DRAWS = 16, 6  # uniform numbers a sample, and each of its strokes, is made of
DRAWS = BASE_DRAWS + CLUTTER * CLUTTER_DRAWS
HEIGHTS = (13.0, 21.0)  # of a capital, in pixels
TURN = 15.0  # degrees, either way
COLOR_JITTER, SHADE, NOISE = 14.0, 6.0, 5.0  # of 255
FAINT = 0.3  # how much of its own colour the clutter has; the rest is the ground's
SCENE_BATCH, SCENE_BLOCKS = 64, 1 << 40  # far above any block of glyphs: scenes share no draws with them
PATCH, TRIES = 48, 20  # room for the largest letter, and places tried before it is left out of a scene
HELD_OUT, PAIRS = 5, 7  # one pair of letter and colour in so many is held out; the draw's own stream
VERSION = 3  # part of the cache's key; raise it when the same seed gives other pictures


@dataclass(frozen=True)
class GlyphSpec:
    """What m samples will look like, before a pixel is drawn; every field is (m, …)."""

    letter: NDArray[np.int64]
    font: NDArray[np.int64]
    ground: NDArray[np.int64]  # numbers of named colours
    ink: NDArray[np.int64]
    ground_rgb: Floats  # (m, 3), the named colour and a little jitter
    ink_rgb: Floats
    height: Floats  # of a capital, in pixels
    turn: Floats  # radians
    place: Floats  # (m, 2) in [0, 1], where between the edges
    shade: Floats  # (m, 2), change of brightness across the picture, in x and y
    clutter: Floats  # (m, CLUTTER, CLUTTER_DRAWS) in [0, 1]

    def captions(self) -> list[tuple[str, ...]]:
        names, _, _ = palette()
        return [
            (f"{article(names[ink])} {names[ink]} letter {LETTERS[letter]} on {names[ground]}",)
            for ink, letter, ground in zip(self.ink, self.letter, self.ground, strict=True)
        ]


def glyphs(
    n: int = 10_000,
    *,
    seed: int = 0,
    split: Split = "train",
    compositional: bool = False,
    cache: Path | None = None,
) -> ArrayDataset:
    """n letters A to Z, 32×32, in random fonts, colours, sizes, places and slight turns, over faint clutter.

    Sample i depends on (seed, split, i) alone, not on n. The test split draws other samples in fonts the train split
    does not have. Raw pixels know little of the letters (k-NN about 12 % of 26), so what is learned shows.

    Args:
        compositional: the test split has combinations of letter and colour that the train split never has, as
            `held_out_pairs` draws them, and both have the same fonts: the combination alone is new.
        cache: folder to keep the pictures in; None: they are drawn again, about 7,000 a second.

    Returns:
        n images with labels (0 to 25), classes ("A" to "Z") and captions ("a teal letter K on orange").

    >>> data = glyphs(3, seed=1)
    >>> len(data), data.size, data.classes[:3]
    (3, 32, ['A', 'B', 'C'])
    """
    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1 glyph")
    fonts: Split = "train" if compositional else split
    held = held_out_pairs(seed) if compositional else None
    plans: list[GlyphSpec] = []
    generators: list[np.random.Generator] = []
    while (left := n - sum(len(plan.letter) for plan in plans)) > 0:
        generators.append(block_generator(seed, split, len(plans)))
        u = generators[-1].random((BLOCK, DRAWS))
        if held is not None:
            plan = planned(u, fonts)
            u = u[held[plan.letter, plan.ink] == (split == "test")]
        plans.append(planned(u[:left], fonts))

    def draw() -> NDArray[np.uint8]:
        return np.concatenate([rendered(plan, fonts, rng) for plan, rng in zip(plans, generators, strict=True)])

    key = f"{'compositional-' * compositional}{split}-{n}-{seed}-{VERSION}-pillow{PIL.__version__}"
    return ArrayDataset(
        draw() if cache is None else cached_array(cache / "glyphs" / key, draw),
        labels=torch.from_numpy(np.concatenate([plan.letter for plan in plans])),
        classes=list(LETTERS),
        captions=[caption for plan in plans for caption in plan.captions()],
    )


def held_out_pairs(seed: int) -> NDArray[np.bool_]:
    """(26, C) whether a letter in a colour is for the test split alone: a fifth of each letter's, and each colour's.

    >>> held = held_out_pairs(0)
    >>> sorted(set(held.sum(1).tolist())), sorted(set(held.sum(0).tolist()))
    ([3, 4], [5, 6])
    """
    rng = np.random.default_rng((seed, PAIRS))
    letters, colors = rng.permutation(len(LETTERS)), rng.permutation(len(palette()[0]))
    return np.asarray((letters[:, None] + colors) % HELD_OUT == 0)


@dataclass(frozen=True, eq=False)
class Scenes:
    """Pictures with several letters, and where they are.

    Attributes:
        dataset: n images without labels.
        boxes: n of (K, 4) float32, x1, y1, x2, y2 in pixels, tight around the ink; K differs between pictures.
        labels: n of (K,) int64.
        classes: names of the labels.
    """

    dataset: ArrayDataset
    boxes: list[Tensor]
    labels: list[Tensor]
    classes: list[str]


def glyph_scenes(n: int = 1000, *, seed: int = 0, split: Split = "train", size: int = 96, most: int = 5) -> Scenes:
    """n pictures of 1 to `most` letters that do not overlap, on one cluttered ground, with their boxes.

    Scene i depends on (seed, split, size, most, i) alone. Splits hold out fonts as those of `glyphs` do.
    """
    if n < 1 or most < 1 or size < PATCH:
        raise ValueError(f"n, most and size are {n}, {most} and {size}, expected at least 1, 1 and {PATCH}")
    generators = [block_generator(seed, split, SCENE_BLOCKS + i) for i in range(n)]
    scenes = Scenes(ArrayDataset(np.empty((n, size, size, 3), np.uint8)), [], [], list(LETTERS))
    for start in range(0, n, SCENE_BATCH):
        rngs = generators[start : start + SCENE_BATCH]
        u = np.stack([rng.random((most, DRAWS)) for rng in rngs])  # (m, most, DRAWS)
        u[:, :, [2, 4, 5, 6]] = u[:, :1, [2, 4, 5, 6]]  # one ground under all letters of a scene
        plan = planned(u.reshape(-1, DRAWS), split)
        fonts = masks(TRAIN_FONTS if split == "train" else TEST_FONTS)[plan.font, plan.letter]
        patches = letter_coverage(fonts, plan.height, plan.turn, np.full_like(plan.place, 0.5), PATCH)
        clutter = plan.clutter.reshape(len(u), -1, CLUTTER_DRAWS)
        canvas = background(plan.ground_rgb[::most], plan.shade[::most], clutter, size)  # (m, 3, size, size)
        inks = single(plan.ink_rgb)
        for i, rng in enumerate(rngs):
            own = slice(i * most, (i + 1) * most)
            boxes, placed = _place(canvas[i], patches[own], inks[own], rng)
            scenes.boxes.append(torch.tensor(boxes, dtype=torch.float32))
            scenes.labels.append(torch.from_numpy(plan.letter[own][placed]))
            scenes.dataset.images[start + i] = finished(canvas[i : i + 1], rng)[0]
    return scenes


def _place(
    canvas: Tensor, patches: Tensor, inks: Tensor, rng: np.random.Generator
) -> tuple[list[list[int]], list[int]]:
    """Put one or more of the letters (K, PATCH, PATCH) on the canvas (3, S, S) where they do not overlap.

    Returns:
        Boxes, and which letters they hold.
    """
    size = canvas.shape[-1]
    boxes: list[list[int]] = []
    placed: list[int] = []
    for k in range(int(rng.integers(1, len(patches) + 1))):
        ink = (patches[k] > 0.1).numpy()
        rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
        patch = patches[k, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        height, width = patch.shape
        for x, y in (rng.random((TRIES, 2)) * (size - width + 1, size - height + 1)).astype(int).tolist():
            box = [x, y, x + width, y + height]
            if not any(x <= b[2] and b[0] <= box[2] and y <= b[3] and b[1] <= box[3] for b in boxes):
                under = canvas[:, y : y + height, x : x + width]
                under.copy_(torch.lerp(under, inks[k][:, None, None], patch))
                boxes.append(box)
                placed.append(k)
                break
    return boxes, placed


def block_generator(seed: int, split: Split, block: int) -> np.random.Generator:
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}, expected 'train' or 'test'")
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected at least 0")
    return np.random.default_rng((seed, split == "test", block))


def planned(u: Floats, split: Split) -> GlyphSpec:
    """Uniform numbers (m, BASE_DRAWS + …) as choices."""
    _, colors, readable = palette()
    fonts = TRAIN_FONTS if split == "train" else TEST_FONTS
    ground = choice(u[:, 2], len(colors))
    ink = np.array([readable[g][int(v * len(readable[g]))] for g, v in zip(ground, u[:, 3], strict=True)])
    return GlyphSpec(
        letter=choice(u[:, 0], len(LETTERS)),
        font=choice(u[:, 1], len(fonts)),
        ground=ground,
        ink=ink,
        ground_rgb=colors[ground] + COLOR_JITTER * (2 * u[:, 4:7] - 1),
        ink_rgb=colors[ink] + COLOR_JITTER * (2 * u[:, 7:10] - 1),
        height=HEIGHTS[0] + (HEIGHTS[1] - HEIGHTS[0]) * u[:, 10],
        turn=np.radians(TURN) * (2 * u[:, 11] - 1),
        place=u[:, 12:14],
        shade=SHADE * (2 * u[:, 14:16] - 1),
        clutter=u[:, BASE_DRAWS:].reshape(len(u), -1, CLUTTER_DRAWS),
    )


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def choice(u: Floats, options: int) -> NDArray[np.int64]:
    """Uniform numbers in [0, 1) as whole numbers below `options`."""
    return (u * options).astype(np.int64)


def rendered(plan: GlyphSpec, split: Split, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(m, 32, 32, 3)."""
    canvas = background(plan.ground_rgb, plan.shade, plan.clutter, SIZE)
    fonts = masks(TRAIN_FONTS if split == "train" else TEST_FONTS)
    ink = letter_coverage(fonts[plan.font, plan.letter], plan.height, plan.turn, plan.place, SIZE)
    canvas = torch.lerp(canvas, single(plan.ink_rgb)[:, :, None, None], ink[:, None])
    return finished(canvas, rng)


def finished(canvas: Tensor, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(m, 3, S, S) in [0, 255] with a grain over it, as (m, S, S, 3) uint8."""
    m, _, side, _ = canvas.shape
    canvas += NOISE * torch.from_numpy(rng.standard_normal((m, 1, side, side), np.float32))
    return np.asarray(canvas.round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous().numpy())


def background(rgb: Floats, shade: Floats, clutter: Floats, side: int) -> Tensor:
    """(m, 3, side, side): a shaded ground with strokes and specks on it."""
    _, colors, _ = palette()
    ramp = torch.linspace(-1, 1, side)
    across, down = single(shade)[:, :, None].unbind(1)  # (m, 1)
    shading = (across * ramp)[:, None, :] + (down * ramp)[:, :, None]  # (m, side, side)
    canvas = single(rgb)[:, :, None, None] + shading[:, None]
    for k in range(clutter.shape[1]):
        x, y, angle, length, width, color = clutter[:, k].T
        longest = SIZE * (0.6 if k % 3 == 0 else 0.06)  # a stroke, then two specks
        covered = stroke_coverage(side * x, side * y, np.pi * angle, longest * (0.5 + length / 2), 0.5 + width, side)
        chosen = single(colors[choice(color, len(colors))])
        canvas = torch.lerp(canvas, chosen[:, :, None, None], FAINT * covered[:, None])
    return canvas


def stroke_coverage(x: Floats, y: Floats, angle: Floats, length: Floats, width: Floats, side: int) -> Tensor:
    """(m, side, side) in [0, 1]: a segment about (x, y), as the distance of each pixel to it."""
    steps = torch.arange(side) + 0.5
    right = steps[None, None, :] - single(x)[:, None, None]
    below = steps[None, :, None] - single(y)[:, None, None]
    cosine, sine = single(np.cos(angle))[:, None, None], single(np.sin(angle))[:, None, None]
    half = single(length)[:, None, None] / 2
    along = right * cosine + below * sine
    off = below * cosine - right * sine
    distance = torch.hypot(off, (along.abs() - half).clamp(min=0))
    return (single(width)[:, None, None] / 2 + 0.5 - distance).clamp(0, 1)


def letter_coverage(mask: Tensor, height: Floats, turn: Floats, place: Floats, side: int) -> Tensor:
    """(m, side, side) in [0, 1]: each mask scaled, turned and put in its place, whole wherever it fits.

    Args:
        mask: (m, CANVAS, CANVAS).
        height: (m,) pixels of a capital.
        turn: (m,) radians.
        place: (m, 2) in [0, 1], x and y between the two edges.
    """
    scale = single(height) / CAP_HEIGHT  # pixels of the picture for one of the mask
    cosine, sine = single(np.cos(turn)), single(np.sin(turn))
    ink = mask > 0
    half_width = ink.any(1).sum(-1) / 2 * scale
    half_height = ink.any(2).sum(-1) / 2 * scale
    half = torch.stack(  # (m, 2), of the upright box around the turned letter
        [half_width * cosine + half_height * sine.abs(), half_width * sine.abs() + half_height * cosine], 1
    )
    free = (side / 2 - 1 - half).clamp(min=0)  # how far from the middle the letter may go
    centre = side / 2 + free * (2 * single(place) - 1)  # (m, 2)
    steps = (torch.arange(2 * side) + 0.5) / 2  # two samples a pixel each way: smooth edges
    right = steps[None, None, :] - centre[:, 0, None, None]
    below = steps[None, :, None] - centre[:, 1, None, None]
    cosine, sine = (cosine / scale)[:, None, None], (sine / scale)[:, None, None]
    grid = torch.stack([right * cosine + below * sine, below * cosine - right * sine], -1) / (CANVAS / 2)
    fine = F.grid_sample(mask[:, None], grid, align_corners=False)  # (m, 1, 2 side, 2 side)
    return F.avg_pool2d(fine, 2)[:, 0]


def single(values: Floats) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float32))
