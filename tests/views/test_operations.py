"""Every operation against torchvision's, on the same parameters, in float32."""

import pytest
import torch
from torch import Tensor

from nearfar import _torchvision  # noqa: F401
from nearfar import views as V

from torchvision.transforms.v2 import functional as T  # isort: skip

TOLERANCE = 2e-6  # of a range of one: a 2000th of a byte's step


def random_images(count: int = 6, height: int = 13, width: int = 17) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, 3, height, width, generator=generator)
    images[0] = images[0].round()  # black, white and pure colours: ties among the channels
    images[1] = images[1, :1]  # gray
    return images


def close(actual: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("height, width, size", [(32, 32, 32), (96, 96, 64), (17, 40, 9), (5, 3, 12), (1, 1, 4)])
def test_crop_resize_equals_resized_crop(height: int, width: int, size: int) -> None:
    generator = torch.Generator().manual_seed(height)
    images = random_images(60, height, width)
    boxes = V.random_crop_boxes(60, height, width, generator, scale=(0.02, 1.0), ratio=(0.3, 3.0))
    boxes[0] = torch.tensor([0, 0, height, width])
    boxes[1] = torch.tensor([0, 0, 1, 1])
    boxes[2] = torch.tensor([height - 1, width - 1, 1, 1])
    boxes[3] = torch.tensor([0, width - 1, height, 1])
    flip = torch.rand(60, generator=generator) < 0.5
    expected = []
    for image, box, mirrored in zip(images, boxes.tolist(), flip.tolist(), strict=True):
        crop = T.resized_crop(image, *box, size=[size, size], antialias=True)
        expected.append(T.horizontal_flip(crop) if mirrored else crop)
    close(V.crop_resize(images, boxes, size, flip), torch.stack(expected), 1e-5)
    assert not V.crop_resize(images, boxes, size).equal(V.crop_resize(images, boxes, size, flip)) or width == 1


FACTORS = torch.tensor([0.0, 0.3, 1.0, 1.4, 1.9, 0.7])


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_colour_factors_equal_torchvisions(name: str) -> None:
    images = random_images()
    theirs = getattr(T, f"adjust_{name}")
    expected = torch.stack([theirs(x, f) for x, f in zip(images, FACTORS.tolist(), strict=True)])
    close(getattr(V, f"adjust_{name}")(images, FACTORS), expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_hue_equals_torchvisions(sign: int) -> None:
    images = random_images(height=64, width=64)
    shifts = sign * torch.tensor([0.5, 0.2, 0.0, 0.05, 1 / 3, 0.11])
    expected = torch.stack([T.adjust_hue(x, f) for x, f in zip(images, shifts.tolist(), strict=True)])
    close(V.adjust_hue(images, shifts), expected, 5e-6)
