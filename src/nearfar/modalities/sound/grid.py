"""A picture of the views of sounds: their spectrograms."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from nearfar.modalities.picture_grid import CELL, ROWS, as_pictures, write_grid
from nearfar.modalities.sound.logmel import LogMel
from nearfar.modalities.sound.views import SoundPreparation, SoundView, make_sound_views


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
    return write_grid([spectrum_pictures(x, CELL) for x in spectra], CELL, path)


def spectrum_pictures(x: Tensor, side: int) -> list[Image.Image]:
    """(B, mels, T) spectrograms as B pictures, low bands at the bottom, each from its least to its greatest value."""
    x = torch.nan_to_num(x, nan=float(x.nan_to_num(nan=torch.inf).min()))
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    gray = ((x - low) / (high - low).clamp(min=1e-6)).flip(1)[:, None].expand(-1, 3, -1, -1)
    return as_pictures(gray, side)
