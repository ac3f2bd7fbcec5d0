"""A picture of views of series: what the encoder is asked to find alike."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from nearfar.views.series import SeriesView, make_series_views

ROWS = 8
_CHANNELS = 3  # shown of a series, at most


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
