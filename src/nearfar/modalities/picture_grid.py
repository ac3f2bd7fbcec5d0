"""Rows of small pictures as one PNG, for `views.png`."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

MARGIN = 2  # pixels between the pictures
ROWS = 12
CELL = 96  # pixels of a side


def rows_to_show(samples: int, seed: int) -> Tensor:
    """(K,) the numbers of a few samples from everywhere, in order: the first ones are often of one kind."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(samples, generator=generator)[:ROWS].sort().values


def write_grid(columns: Sequence[Sequence[Image.Image]], cell: int, path: str | Path) -> Path:
    """Columns of pictures, in the middle of their cells, as a PNG."""
    pitch = cell + MARGIN
    sheet = Image.new("RGB", (len(columns) * pitch + MARGIN, len(columns[0]) * pitch + MARGIN), "white")
    for x, column in enumerate(columns):
        for y, picture in enumerate(column):
            offset = MARGIN + (cell - picture.width) // 2
            sheet.paste(picture, (x * pitch + offset, y * pitch + offset))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, format="PNG")
    return path


def as_pictures(x: Tensor, side: int) -> list[Image.Image]:
    """(B, 3, s, s) in [0, 1] as B pictures of `side` pixels."""
    bytes_ = x.mul(255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
    return [Image.fromarray(picture).resize((side, side), Image.Resampling.NEAREST) for picture in bytes_]
