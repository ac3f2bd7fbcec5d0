"""A picture of views: what the encoder is asked to find alike."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from nearfar.modalities.image.views.arguments import check_images, check_size
from nearfar.modalities.image.views.prepare import resize_eval
from nearfar.modalities.image.views.presets import make_views
from nearfar.modalities.image.views.view import ImageView
from nearfar.modalities.sound.logmel import LogMel
from nearfar.modalities.sound.views import SoundPreparation, SoundView, make_sound_views

MARGIN = 2  # pixels between the pictures
ROWS = 12
CELL = 96  # pixels of a side


def view_grid(
    images: Tensor,
    views: Sequence[ImageView],
    path: str | Path,
    *,
    seed: int = 0,
    step: int = 0,
    cell: int = CELL,
) -> Path:
    """Write a PNG with a row for each image: the original, then each of its views.

    Args:
        images: (B, 3, H, W), uint8 or floating point in [0, 1]; at most the first 12 are shown.
        views: the recipes.
        path: of the PNG; folders are made.
        seed, step: whose views are shown, as in `make_views`.
        cell: side of each picture in pixels; views keep their proportion to the largest, magnified without smoothing.

    Returns:
        The path.
    """
    check_images(images)
    check_size(cell)
    if len(images) == 0 or len(views) == 0:
        raise ValueError(f"{len(images)} images and {len(views)} views, expected at least one of each")
    images = images[:ROWS]
    largest = max(view.size for view in views)
    plain = resize_eval(images, cell, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    columns = [_pictures(plain, cell)]
    for view, made in zip(views, make_views(images, views, seed=seed, step=step), strict=True):
        scale = ((0.5,) * 3, (1 / 6,) * 3) if view.standardize else (view.mean, view.std)  # ± 3 deviations are shown
        mean, std = (made.new_tensor(values).view(3, 1, 1) for values in scale)
        columns.append(_pictures(made * std + mean, max(1, cell * view.size // largest)))

    return _sheet(columns, cell, path)


def sound_grid(
    waves: Tensor, views: Sequence[SoundView], path: str | Path, *, mel: LogMel, seed: int = 0, step: int = 0
) -> Path:
    """Write a PNG with a row for each sound: its spectrogram, then those of its views, time to the right.

    Args:
        waves: (B, L) int16, -32768 behind the end; at most the first 12 are shown.
        views: the recipes; of views that are waves the spectrogram is shown.
        mel: how waves become spectrograms.
        seed, step: whose views are shown, as in `make_sound_views`.
    """
    if len(waves) == 0 or len(views) == 0:
        raise ValueError(f"{len(waves)} sounds and {len(views)} views, expected at least one of each")
    waves = waves[:ROWS]
    plain = SoundPreparation(views[0].values, mel, whole=False)(waves)
    made = (x[:, 0] for x in make_sound_views(waves, views, seed=seed, step=step))
    spectra = [plain[:, 0], *(mel(x) if x.ndim == 2 else x for x in made)]
    return _sheet([spectrum_pictures(x, CELL) for x in spectra], CELL, path)


def spectrum_pictures(x: Tensor, side: int) -> list[Image.Image]:
    """(B, mels, T) spectrograms as B pictures, low bands at the bottom, each from its least to its greatest value."""
    x = torch.nan_to_num(x, nan=float(x.nan_to_num(nan=torch.inf).min()))
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    gray = ((x - low) / (high - low).clamp(min=1e-6)).flip(1)[:, None].expand(-1, 3, -1, -1)
    return _pictures(gray, side)


def _sheet(columns: Sequence[Sequence[Image.Image]], cell: int, path: str | Path) -> Path:
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


def _pictures(x: Tensor, side: int) -> list[Image.Image]:
    """(B, 3, s, s) in [0, 1] as B pictures of `side` pixels."""
    bytes_ = x.mul(255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
    return [Image.fromarray(picture).resize((side, side), Image.Resampling.NEAREST) for picture in bytes_]
