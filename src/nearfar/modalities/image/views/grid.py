"""A picture of views: what the encoder is asked to find alike."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from nearfar.modalities.image.views.arguments import check_images, check_size
from nearfar.modalities.image.views.prepare import resize_eval
from nearfar.modalities.image.views.presets import make_views
from nearfar.modalities.image.views.view import ImageView
from nearfar.modalities.picture_grid import CELL, ROWS, as_pictures, write_grid


def view_grid(
    images: Tensor,
    views: Sequence[ImageView],
    path: str | Path,
    *,
    seed: int = 0,
    step: int = 0,
    cell: int = CELL,
    made: Sequence[Tensor] | None = None,
) -> Path:
    """Write a PNG with a row for each image: the original, then each of its views.

    Args:
        images: (B, 3, H, W), uint8 or floating point in [0, 1]; at most the first 12 are shown.
        views: the recipes.
        path: of the PNG; folders are made.
        seed, step: whose views are shown, as in `make_views`.
        made: views that were made before, one for each recipe, whose sizes and scales are the recipes'.
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
    columns = [as_pictures(plain, cell)]
    shown = make_views(images, views, seed=seed, step=step) if made is None else [each[:ROWS] for each in made]
    for view, pixels in zip(views, shown, strict=True):
        scale = ((0.5,) * 3, (1 / 6,) * 3) if view.standardize else (view.mean, view.std)  # ± 3 deviations are shown
        mean, std = (pixels.new_tensor(values).view(3, 1, 1) for values in scale)
        columns.append(as_pictures(pixels * std + mean, max(1, cell * view.size // largest)))

    return write_grid(columns, cell, path)
