"""Contact sheets: pictures with two lines below each, such as a query and what was found."""

import io
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from nearfar.data.cache import write_file
from nearfar.report.thumbnail_sheet import paste_grid

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
    title: str = "query",
) -> Path:
    """Write a PNG: the query in a frame, then the results, most similar first, with similarity and name.

    Args:
        query: (S, S, 3).
        found: K of (S, S, 3).
        similarities, names: K each.
        path: of the PNG; its folder is made.
        title: below the query.
    """
    captions = [(title, ""), *((f"{s:.3f}", name) for s, name in zip(similarities, names, strict=True))]
    return picture_sheet([query, *found], captions, path, framed=True)


def picture_sheet(
    pictures: Sequence[NDArray[np.uint8]], captions: Sequence[tuple[str, str]], path: Path, *, framed: bool = False
) -> Path:
    """Write a PNG of pictures row by row, each with two lines below.

    Args:
        pictures: K of (S, S, 3).
        captions: K pairs of lines; of one that is too wide, the end is shown.
        path: of the PNG; its folder is made.
        framed: draw a frame around the first.
    """
    resized = [Image.fromarray(each).resize((CELL, CELL), Image.Resampling.LANCZOS) for each in pictures]
    columns = min(COLUMNS, len(captions))
    sheet = paste_grid([np.asarray(each) for each in resized], columns, margin=MARGIN, below=CAPTION)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    if framed:
        draw.rectangle((MARGIN - 2, MARGIN - 2, MARGIN + CELL + 1, MARGIN + CELL + 1), outline=FRAME, width=3)
    for place, caption in enumerate(captions):
        y, x = divmod(place, columns)
        left, bottom = MARGIN + x * (CELL + MARGIN), MARGIN + y * (CELL + CAPTION + MARGIN) + CELL
        for line, text in enumerate(caption):
            draw.text((left, bottom + 2 + 13 * line), _fit(text, font), fill=INK, font=font)
    content = io.BytesIO()
    sheet.save(content, "PNG")
    return write_file(path, content.getvalue())


def unused_name(stem: str) -> Path:
    """The first of stem.png, stem-2.png, ... that does not exist."""
    names = (Path(f"{stem}{'' if i == 1 else f'-{i}'}.png") for i in count(1))
    return next(name for name in names if not name.exists())


def _fit(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """A text as wide as a cell at most, cut in its middle: a folder may be the class, and the end tells files apart."""
    shown = text = " ".join(text.split())
    kept = len(text)
    while font.getlength(shown) > CELL and kept > 2:
        kept -= 1
        shown = f"{text[: kept // 2]}…{text[len(text) - (kept - kept // 2) :]}"
    return shown
