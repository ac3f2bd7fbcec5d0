"""Letters as masks and colours with names: what the built-in glyphs are drawn from."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

# Fonts that ship inside matplotlib and draw all 26 letters apart; the test fonts are never trained on.
TRAIN_FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBolIta",
    "cmb10",
    "cmr10",
    "cmmi10",
    "cmti10",
    "cmtt10",
)
TEST_FONTS = (
    "DejaVuSans-Oblique",
    "DejaVuSansMono-Bold",
    "DejaVuSerif",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "cmss10",
)

COLORS = {
    "black": (20, 20, 20),
    "gray": (128, 128, 128),
    "white": (240, 240, 240),
    "red": (215, 40, 40),
    "orange": (245, 140, 30),
    "yellow": (245, 220, 60),
    "olive": (125, 125, 30),
    "green": (40, 160, 60),
    "lime": (160, 230, 70),
    "teal": (0, 125, 125),
    "cyan": (80, 215, 230),
    "blue": (45, 90, 215),
    "navy": (20, 30, 100),
    "purple": (120, 45, 150),
    "pink": (250, 150, 190),
    "brown": (115, 65, 30),
}

READABLE = 60.0  # least difference of luminance between a letter and its ground
CANVAS = 80  # side of a mask
CAP_HEIGHT = 40  # height of an H in it; the widest letter is 1.67 times as wide


def font_folder() -> Path:
    """Where matplotlib keeps its fonts."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def font_path(name: str) -> Path:
    path = font_folder() / f"{name}.ttf"
    if not path.is_file():
        raise FileNotFoundError(f"the font {name}.ttf is not in {path.parent}; reinstall matplotlib, which ships it")
    return path


@cache
def masks(fonts: tuple[str, ...]) -> Tensor:
    """(F, 26, CANVAS, CANVAS) in [0, 1]: every letter in every font, ink box in the middle, capitals equally high."""
    drawn = np.zeros((len(fonts), len(LETTERS), CANVAS, CANVAS), np.float32)
    for f, name in enumerate(fonts):
        path = font_path(name)
        _, top, _, bottom = ImageFont.truetype(path, 200).getbbox("H")
        font = ImageFont.truetype(path, 200 * CAP_HEIGHT / (bottom - top))
        for k, letter in enumerate(LETTERS):
            picture = Image.new("L", (2 * CANVAS, 2 * CANVAS))
            ImageDraw.Draw(picture).text((CANVAS, CANVAS), letter, font=font, fill=255, anchor="mm")
            left, top, right, bottom = picture.getbbox() or (0, 0, 0, 0)
            x, y = (left + right - CANVAS) // 2, (top + bottom - CANVAS) // 2
            drawn[f, k] = np.asarray(picture.crop((x, y, x + CANVAS, y + CANVAS)), np.float32) / 255
    return torch.from_numpy(drawn)


def luminance(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """(…, 3) in [0, 255] to (…,): how bright the eye finds it."""
    return np.asarray(rgb @ np.array([0.299, 0.587, 0.114]))


@cache
def palette() -> tuple[list[str], NDArray[np.float64], list[NDArray[np.int64]]]:
    """Names, (C, 3) values, and for each colour the colours that can be read on it."""
    values = np.array(list(COLORS.values()), np.float64)
    bright = luminance(values)
    readable = np.abs(bright[:, None] - bright) >= READABLE
    return list(COLORS), values, [np.flatnonzero(row) for row in readable]
