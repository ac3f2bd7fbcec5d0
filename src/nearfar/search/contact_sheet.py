"""A contact sheet: the query and what was found, each with its similarity and name."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from nearfar.data.cache import replacing

CELL, CAPTION, MARGIN = 128, 30, 6  # pixels
COLUMNS = 7
INK, FRAME = "#222222", "#d95f02"


def contact_sheet(
    query: NDArray[np.uint8],
    found: Sequence[NDArray[np.uint8]],
    similarities: Sequence[float],
    names: Sequence[str],
    path: Path,
    *,
    words: str = "query",
) -> Path:
    """Write a PNG: the query, framed, then the pictures in falling order of similarity.

    Args:
        query: (S, S, 3).
        found: K of (S, S, 3).
        similarities, names: K each.
        path: of the PNG; folders are made.
        words: below the query.
    """
    captions = [(words, ""), *((f"{s:.3f}", name) for s, name in zip(similarities, names, strict=True))]
    pictures = [query, *found]
    columns = min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    wide, high = CELL + MARGIN, CELL + CAPTION + MARGIN
    sheet = Image.new("RGB", (columns * wide + MARGIN, rows * high + MARGIN), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for place, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        y, x = divmod(place, columns)
        left, top = MARGIN + x * wide, MARGIN + y * high
        sheet.paste(Image.fromarray(picture).resize((CELL, CELL), Image.Resampling.LANCZOS), (left, top))
        if place == 0:
            draw.rectangle((left - 2, top - 2, left + CELL + 1, top + CELL + 1), outline=FRAME, width=3)
        for line, text in enumerate(caption):
            draw.text((left, top + CELL + 2 + 13 * line), fitted(text, font), fill=INK, font=font)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh:
        sheet.save(fresh, format="PNG")
    return path


def fitted(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """The end of a text that is too wide for a cell: of a path, the telling part."""
    plain = " ".join(text.split())
    shown = plain
    while shown and font.getlength(shown if shown == plain else f"…{shown}") > CELL:
        shown = shown[1:]
    return shown if shown == plain else f"…{shown}"
