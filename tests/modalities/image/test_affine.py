"""The affine map: against plain loops, and against turns and shifts that need no interpolation."""

import math

import pytest
import torch
from torch import Tensor

from nearfar.modalities.image.views.affine import affine, affine_matrix
from nearfar.modalities.image.views.view import ImageView
from tests.support.facts import facts


def numbers(*values: float) -> Tensor:
    return torch.tensor(values)


def by_loops(
    image: Tensor, turn: float, zoom: float, stretch: float, shear: float, shift: tuple[float, float]
) -> Tensor:
    """One image (3, S, S), pixel by pixel: where it looks, in pixels from the centre, then bilinear, edges kept."""
    side = image.shape[-1]
    out = torch.zeros_like(image)
    a = math.radians(turn)
    for row in range(side):
        for column in range(side):
            x, y = column + 0.5 - side / 2, row + 0.5 - side / 2
            x, y = x * math.sqrt(stretch) / zoom + shear * y, y / (math.sqrt(stretch) * zoom)
            x, y = x * math.cos(a) - y * math.sin(a), x * math.sin(a) + y * math.cos(a)
            x = min(max(x + shift[0] * side + side / 2 - 0.5, 0.0), side - 1.0)
            y = min(max(y + shift[1] * side + side / 2 - 0.5, 0.0), side - 1.0)
            left, top = int(x), int(y)
            right, bottom = min(left + 1, side - 1), min(top + 1, side - 1)
            u, v = x - left, y - top
            above = (1 - u) * image[:, top, left] + u * image[:, top, right]
            below = (1 - u) * image[:, bottom, left] + u * image[:, bottom, right]
            out[:, row, column] = (1 - v) * above + v * below
    return out


def test_affine_equals_plain_loops() -> None:
    images = torch.rand(3, 3, 11, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters = [
        (12.0, 0.8, 1.3, 0.2, (0.1, -0.2)),
        (-30.0, 1.2, 0.8, -0.3, (0.0, 0.3)),
        (0.0, 1.0, 1.0, 0.0, (0.0, 0.0)),
    ]
    turn, zoom, stretch, shear = (
        torch.tensor(p, dtype=torch.float64) for p in zip(*[p[:4] for p in parameters], strict=True)
    )
    shift = torch.tensor([p[4] for p in parameters], dtype=torch.float64).t()
    expected = torch.stack([by_loops(image, *p) for image, p in zip(images, parameters, strict=True)])
    actual = affine(images, affine_matrix(turn, zoom, stretch, shear, shift))
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(actual[2], images[2])


def test_quarter_turns_and_whole_shifts_are_exact() -> None:
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    one, nothing = torch.ones(2), torch.zeros(2)
    matrix = affine_matrix(numbers(90, 0), one, one, nothing, numbers(0, 0.25, 0, 0).view(2, 2))
    turned, shifted = affine(images, matrix)
    torch.testing.assert_close(turned, images[0].rot90(1, (1, 2)), atol=1e-5, rtol=0)
    torch.testing.assert_close(shifted[:, :, :6], images[1, :, :, 2:], atol=1e-5, rtol=0)
    torch.testing.assert_close(shifted[:, :, 6:], images[1, :, :, 7:].expand(-1, -1, 2), atol=1e-5, rtol=0)


def test_amounts_are_drawn_as_the_docstring_says() -> None:
    view = ImageView(size=8, affine=1.0, turn=0.0, zoom=(0.5, 2.0), stretch=(1.0, 1.0), shear=0.3, shift=0.2)
    drawn = view.draw(4000, 8, 8, torch.Generator().manual_seed(0)).affine
    zoom, shear, shift = 1 / drawn[:, 0, 0], drawn[:, 0, 1], drawn[:, :, 2] / 2
    for values, low, high in (
        (zoom.log(), math.log(0.5), math.log(2)),
        (shear, -0.3, 0.3),
        (shift[:, 0], -0.2, 0.2),
        (shift[:, 1], -0.2, 0.2),
    ):
        share = ((values - low) / (high - low)).sort()[0]  # uniform in [0, 1]
        assert (share - torch.linspace(0, 1, 4000)).abs().max() < 1.63 / math.sqrt(4000) + 1e-3


def test_wrong_amounts_are_refused() -> None:
    with pytest.raises(ValueError, match=facts("zoom")):
        ImageView(size=8, zoom=(0.0, 1.0))
    with pytest.raises(ValueError, match=facts("shift -1")):
        ImageView(size=8, shift=-1)
    with pytest.raises(ValueError, match=facts("matrix (2, 3) (2, 2, 3)")):
        affine(torch.zeros(2, 3, 4, 4), torch.zeros(2, 3))
