"""A picture of views of series: what the encoder is asked to find alike."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from nearfar.modalities.series.views import SeriesView, make_series_views

ROWS = 8
_CHANNELS = 3  # shown of a series, at most
_COLOURS = ("#1f66b0", "#b5541c", "#19713c")


def plot_views(x: Tensor, views: Sequence[SeriesView], path: str | Path, *, seed: int = 0, step: int = 0) -> Path:
    """Write a PNG with a row for each series: as it is prepared, then each of its views.

    Args:
        x: (B, C, T) prepared series; at most the first 8 are shown, of each at most 3 channels.
        views: the recipes.
        path: of the PNG; folders are made.
        seed, step: whose views are shown, as in `make_series_views`.
    """
    if not len(x) or not views:
        raise ValueError(f"{len(x)} series and {len(views)} views, expected at least one of each")
    from matplotlib.figure import Figure

    x = x[:ROWS].cpu()
    columns = [x, *make_series_views(x, views, seed=seed, step=step)]
    figure = Figure(figsize=(3.2 * len(columns), 1.1 * len(x) + 0.4), layout="constrained")
    axes = figure.subplots(len(x), len(columns), squeeze=False, sharey="row")
    for place, column in enumerate(columns):
        axes[0][place].set_title("series" if place == 0 else f"view {place}", fontsize=9)
        for row, series in enumerate(column):
            for channel in series[:_CHANNELS]:
                axes[row][place].plot(channel.numpy(), linewidth=0.9)
            axes[row][place].tick_params(labelsize=6, labelbottom=row == len(x) - 1)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=80)
    return path


def series_pictures(x: Tensor, side: int) -> NDArray[np.uint8]:
    """(B, C, T) prepared series as B small drawings (side, side, 3), each from its least to its greatest value.

    Of each at most 3 channels are drawn; what is behind the end (NaN) is left out.
    """
    drawn = np.empty((len(x), side, side, 3), np.uint8)
    for number, series in enumerate(x[:, :_CHANNELS].float().cpu().numpy()):
        picture = Image.new("RGB", (side, side), "white")
        pen = ImageDraw.Draw(picture)
        there = series[np.isfinite(series)]
        low, high = (there.min(), there.max()) if len(there) else (0.0, 0.0)
        steps = int(np.isfinite(series).any(0).nonzero()[0].max(initial=0)) + 1
        for channel, colour in zip(series, _COLOURS, strict=False):
            seen = np.isfinite(channel).nonzero()[0]
            across = 1 + seen / max(steps - 1, 1) * (side - 3)
            down = 1 + (high - channel[seen]) / max(high - low, 1e-9) * (side - 3)
            pen.line(list(zip(across.tolist(), down.tolist(), strict=True)), fill=colour)
        drawn[number] = np.asarray(picture)
    return drawn
