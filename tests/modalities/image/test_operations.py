"""Every operation against torchvision's, on the same parameters, in float32."""

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from nearfar import _torchvision  # noqa: F401
from nearfar.modalities.image.views import color
from nearfar.modalities.image.views.blur import gaussian_blur
from nearfar.modalities.image.views.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    normalize,
    solarize,
    to_grayscale,
)
from nearfar.modalities.image.views.crop import crop_resize, random_crop_boxes
from nearfar.modalities.image.views.prepare import resize_eval
from nearfar.modalities.image.views.view import ImageView

from torchvision.transforms import InterpolationMode  # isort: skip
from torchvision.transforms.v2 import functional as T  # isort: skip

from tests.support.facts import facts

MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}
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
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_crop_resize_equals_resized_crop(
    height: int, width: int, size: int, interpolation: Literal["bilinear", "bicubic"]
) -> None:
    generator = torch.Generator().manual_seed(height)
    images = random_images(60, height, width)
    boxes = random_crop_boxes(60, height, width, generator, scale=(0.02, 1.0), ratio=(0.3, 3.0))
    boxes[0] = torch.tensor([0, 0, height, width])
    boxes[1] = torch.tensor([0, 0, 1, 1])
    boxes[2] = torch.tensor([height - 1, width - 1, 1, 1])
    boxes[3] = torch.tensor([0, width - 1, height, 1])
    flip = torch.rand(60, generator=generator) < 0.5
    expected = []
    for image, box, mirrored in zip(images, boxes.tolist(), flip.tolist(), strict=True):
        crop = T.resized_crop(image, *box, size=[size, size], interpolation=MODES[interpolation], antialias=True)
        expected.append(T.horizontal_flip(crop).clamp(0, 1) if mirrored else crop.clamp(0, 1))
    close(crop_resize(images, boxes, size, flip, interpolation=interpolation), torch.stack(expected), 1e-5)
    assert not crop_resize(images, boxes, size).equal(crop_resize(images, boxes, size, flip)) or width == 1


FACTORS = torch.tensor([0.0, 0.3, 1.0, 1.4, 1.9, 0.7])


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_color_factors_equal_torchvisions(name: str) -> None:
    images = random_images()
    theirs = getattr(T, f"adjust_{name}")
    expected = torch.stack([theirs(x, f) for x, f in zip(images, FACTORS.tolist(), strict=True)])
    close(getattr(color, f"adjust_{name}")(images, FACTORS), expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_hue_equals_torchvisions(sign: int) -> None:
    images = random_images(height=64, width=64)
    shifts = sign * torch.tensor([0.5, 0.2, 0.0, 0.05, 1 / 3, 0.11])
    expected = torch.stack([T.adjust_hue(x, f) for x, f in zip(images, shifts.tolist(), strict=True)])
    close(adjust_hue(images, shifts), expected, 5e-6)


def test_grayscale_equals_torchvisions() -> None:
    images = random_images()
    close(to_grayscale(images), T.rgb_to_grayscale(images, num_output_channels=3))


@pytest.mark.parametrize("height, width, radius", [(64, 64, 3), (13, 17, 6), (7, 5, 4), (1, 1, 0)])
def test_blur_equals_torchvisions(height: int, width: int, radius: int) -> None:
    images = random_images(height=height, width=width)
    sigmas = torch.tensor([0.1, 0.5, 1.0, 1.5, 2.0, 7.0])
    expected = [T.gaussian_blur(x, [2 * radius + 1] * 2, [s]) for x, s in zip(images, sigmas.tolist(), strict=True)]
    close(gaussian_blur(images, sigmas, radius), torch.stack(expected))


@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.5, 1.0])
def test_solarize_equals_torchvisions(threshold: float) -> None:
    images = random_images()
    close(solarize(images, threshold), T.solarize(images, threshold))


def test_normalize_equals_torchvisions() -> None:
    images, mean, std = random_images(), (0.1, 0.5, 0.7), (0.2, 0.3, 1.5)
    close(normalize(images, mean, std), T.normalize(images, list(mean), list(std)))


COLOR_OPERATIONS = {
    "brightness": lambda x, **out: adjust_brightness(x, 1.3, **out),
    "contrast": lambda x, **out: adjust_contrast(x, 1.3, **out),
    "saturation": lambda x, **out: adjust_saturation(x, 1.3, **out),
    "hue": lambda x, **out: adjust_hue(x, 0.2, **out),
    "grayscale": lambda x, **out: to_grayscale(x, **out),
    "solarize": lambda x, **out: solarize(x, 0.5, **out),
    "blur": lambda x, **out: gaussian_blur(x, 1.0, 2, **out),
    "normalize": lambda x, **out: normalize(x, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2), **out),
}


@pytest.mark.parametrize("name", COLOR_OPERATIONS)
def test_in_place_and_strided_and_double_are_the_same(name: str) -> None:
    operation = COLOR_OPERATIONS[name]
    images = random_images()
    kept = images.clone()
    expected = operation(images)
    assert images.equal(kept), "the input was changed"
    assert expected.is_contiguous()
    close(operation(images.to(memory_format=torch.channels_last)), expected)
    close(operation(images.double()).float(), expected)
    assert operation(images, out=images) is images
    assert images.equal(expected)
    assert len(operation(images[:0])) == 0


def test_results_do_not_share_memory_with_later_calls() -> None:
    images = random_images()
    first = [operation(images) for operation in COLOR_OPERATIONS.values()]
    kept = [result.clone() for result in first]
    for operation in COLOR_OPERATIONS.values():
        operation(1 - images)
    assert all(a.equal(b) for a, b in zip(first, kept, strict=True))


def test_bytes_and_floats_give_the_same_crop() -> None:
    images = (random_images() * 255).byte()
    boxes = torch.tensor([[1, 2, 9, 11]] * len(images))
    close(crop_resize(images, boxes, 8), crop_resize(images.float() / 255, boxes, 8))
    close(crop_resize(images, boxes, 8), crop_resize(images.double() / 255, boxes, 8))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: adjust_hue(torch.rand(3, 8, 8), 0.1), "(3, 8, 8) (B, 3, H, W)"),
        (lambda: adjust_hue(torch.rand(2, 1, 8, 8), 0.1), "1 expand"),
        (lambda: adjust_hue(torch.rand(2, 8, 8, 3), 0.1), "8 permute"),
        (lambda: adjust_hue(torch.rand(2, 3, 8, 0), 0.1), "pixel"),
        (lambda: adjust_contrast(torch.rand(2, 3, 8, 8), torch.ones(3)), "factor (3,) (2,)"),
        (lambda: crop_resize(torch.rand(2, 3, 8, 8), torch.ones(2, 2), 4), "(2, 4)"),
        (lambda: crop_resize(torch.rand(2, 3, 8, 8), torch.ones(2, 4), 0), "size 0"),
        (lambda: crop_resize(torch.rand(2, 3, 8, 8), torch.ones(2, 4), 4, torch.ones(3).bool()), "flip"),
        (lambda: gaussian_blur(torch.rand(2, 3, 8, 8), 1.0, 8), "radius 8 0 7"),
        (lambda: ImageView(size=32, flip=1.5), "flip 1.5"),
        (lambda: ImageView(size=32, crop_scale=(0.5, 0.1)), "crop_scale is"),
        (lambda: ImageView(size=32, hue=0.7), "hue 0.7"),
        (lambda: ImageView(size=32, contrast=-1), "contrast -1"),
        (lambda: ImageView(size=32, std=(1.0, 0.0, 1.0)), "std above 0"),
    ],
)
def test_bad_values_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=facts(message)) as error:
        call()
    assert "\n" not in str(error.value)


def test_bad_types_are_named() -> None:
    with pytest.raises(TypeError, match=facts("images torch.int64 uint8")):
        resize_eval(torch.ones(2, 3, 8, 8, dtype=torch.long), 8)
    with pytest.raises(TypeError, match=facts("/ 255")):
        adjust_hue(torch.ones(2, 3, 8, 8, dtype=torch.uint8), 0.1)
    with pytest.raises(TypeError, match=facts("images list")):
        resize_eval([1, 2], 8)  # type: ignore[arg-type]
