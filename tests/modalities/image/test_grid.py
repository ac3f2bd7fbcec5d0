"""The contact sheet: size, order and colours."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from nearfar.modalities.image.views.grid import view_grid
from nearfar.modalities.image.views.presets import dino
from nearfar.modalities.image.views.view import ImageView
from tests.support.facts import facts


def test_the_grid_shows_originals_and_views_in_their_own_colors(tmp_path: Path) -> None:
    colors = torch.tensor([[200, 30, 60], [10, 220, 90]], dtype=torch.uint8)
    images = colors.view(2, 3, 1, 1).expand(-1, -1, 20, 14)
    plain = ImageView(size=16, jitter=0.0, grayscale=0.0, blur=0.0)
    path = view_grid(images, [plain, plain], tmp_path / "new" / "views.png", cell=32)
    sheet = Image.open(path)
    assert sheet.size == (3 * 34 + 2, 2 * 34 + 2)
    for row, color in enumerate(colors.tolist()):
        for column in range(3):
            assert sheet.getpixel((2 + 34 * column + 16, 2 + 34 * row + 16)) == tuple(color)
    assert sheet.getpixel((0, 0)) == (255, 255, 255)


def test_the_grid_shows_at_most_twelve_and_small_views_small(tmp_path: Path) -> None:
    images = torch.zeros(30, 3, 8, 8, dtype=torch.uint8)
    sheet = Image.open(view_grid(images, dino(32, local_crops=1), tmp_path / "views.png", cell=28))
    assert sheet.size == (4 * 30 + 2, 12 * 30 + 2)
    assert sheet.getpixel((2 + 3 * 30 + 1, 3)) == (255, 255, 255), "the local view fills its cell"


def test_an_empty_grid_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=facts("at least one")):
        view_grid(torch.zeros(0, 3, 8, 8), dino(32), tmp_path / "views.png")
