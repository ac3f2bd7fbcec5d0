"""The judge of colors that needs no labels: clusters of color beside clusters of an encoder."""

from colorsys import hsv_to_rgb

import pytest
import torch
from torch import Tensor

from nearfar.training.color_test import CHANCE, CONTENT, agreement_beyond_chance, color_agreement, middle_colors


def pictures_of(hues: Tensor) -> Tensor:
    """(N,) to (N, 3, 8, 8): the middle in a hue, a border of noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (len(hues), 3, 8, 8), generator=generator, dtype=torch.uint8)
    tints = torch.tensor([hsv_to_rgb(float(hue) % 1, 0.7, 0.9) for hue in hues])
    x[:, :, 2:6, 2:6] = (tints * 255).to(torch.uint8)[:, :, None, None]
    return x


@pytest.mark.parametrize(("goes_with", "expected"), [(True, "keep"), (False, "vary")])
def test_colors_that_go_with_the_shape_are_content_and_others_are_chance(goes_with: bool, expected: str) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = torch.randint(24, (1000,), generator=generator)
    features = torch.randn(24, 16, generator=generator)[shapes] + 0.1 * torch.randn(1000, 16, generator=generator)
    hues = shapes[torch.arange(1000) if goes_with else torch.randperm(1000, generator=generator)] / 24
    found = color_agreement(pictures_of(hues + 0.005 * torch.randn(1000, generator=generator)), features, 0)
    assert found >= CONTENT if expected == "keep" else found <= CHANCE


def test_clusters_of_one_are_no_agreement_and_no_fault() -> None:
    alike = torch.zeros(400, dtype=torch.long)
    assert agreement_beyond_chance(alike, torch.arange(400) % 5, 0) == pytest.approx(0)
    pictures = torch.full((300, 3, 8, 8), 90, dtype=torch.uint8)
    assert color_agreement(pictures, torch.ones(300, 4), 0) <= CHANCE


def test_the_color_is_that_of_the_middle_whatever_the_light() -> None:
    hues = torch.tensor([0.0, 0.0, 0.3, 0.6])
    x = pictures_of(hues).float()
    x[1, :, 2:6, 2:6] *= 0.6
    found = middle_colors(x.to(torch.uint8))
    assert float((found[0] - found[1]).norm()) < 0.3 < float((found[0] - found[2]).norm())
