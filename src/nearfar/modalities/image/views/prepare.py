"""The view without chance: how an image is prepared for an encoder that is evaluated or used."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nearfar.messages import shown
from nearfar.modalities.image.views.arguments import check_images, check_size
from nearfar.modalities.image.views.color import LEAST_DEVIATION, LUMA, normalize, standardize, to_grayscale
from nearfar.modalities.image.views.crop import crop_resize
from nearfar.modalities.image.views.view import IMAGENET_MEAN, IMAGENET_STD, ImageView

LARGEST_SIDE = 4096  # of an input image; more is a mistake, or a file that wants all the memory


@torch.no_grad()
def resize_eval(
    images: Tensor,
    size: int,
    *,
    mean: tuple[float, float, float] = IMAGENET_MEAN,
    std: tuple[float, float, float] = IMAGENET_STD,
) -> Tensor:
    """The largest central square, resized with antialiasing, normalised.

    Args:
        images: (B, 3, H, W), uint8 or floating point in [0, 1].

    Returns:
        (B, 3, size, size), float32.
    """
    resized = central_square(images, size)
    return normalize(resized, mean, std, out=resized)


@dataclass(frozen=True)
class Preparation:
    """What an encoder's images go through: what its views do always, and nothing that they do by chance."""

    size: int
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    grayscale: bool = False
    standardize: bool = False  # each image by its own mean and deviation, in place of `mean` and `std`

    @classmethod
    def of(cls, view: ImageView) -> "Preparation":
        return cls(view.size, view.mean, view.std, view.grayscale == 1, view.standardize)

    @classmethod
    def of_card(cls, card: Mapping[str, Any]) -> "Preparation":
        """What the images of a card's encoder go through."""
        flags = (card.get("grayscale", False), card.get("standardize", False))
        return cls(card["image_size"], tuple(card["mean"]), tuple(card["std"]), *flags)

    @property
    def plain(self) -> bool:
        """Whether it only resizes, and normalises all images alike."""
        return not (self.grayscale or self.standardize)

    def card(self) -> dict[str, Any]:
        """The same for the card beside an encoder's weights."""
        return {
            "image_size": self.size,
            "mean": list(self.mean),
            "std": list(self.std),
            "grayscale": self.grayscale,
            "standardize": self.standardize,
            "preprocessing": self.words(),
        }

    def words(self) -> str:
        """For who writes it in another language.

        >>> Preparation(32).words()
        'RGB in [0, 1]; the largest central square, resized with antialiasing to 32 pixels; minus mean, divided by std'
        """
        gray = f"; {LUMA[0]} R + {LUMA[1]} G + {LUMA[2]} B in all three channels" if self.grayscale else ""
        own = f"minus its own mean, divided by its own deviation + {LEAST_DEVIATION}"
        return (
            f"RGB in [0, 1]; the largest central square, resized with antialiasing to {self.size} pixels{gray}; "
            f"{own if self.standardize else 'minus mean, divided by std'}"
        )

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """(B, 3, H, W), uint8 or floating point in [0, 1], to (B, 3, size, size), float32."""
        return self._adjusted(central_square(images, self.size))

    @torch.no_grad()
    def whole(self, images: Tensor) -> Tensor:
        """(B, 3, H, W), uint8 or floating point in [0, 1], to (B, 3, H, W), float32: all but the square and its size.

        >>> Preparation(32).whole(torch.zeros(1, 3, 40, 60, dtype=torch.uint8)).shape
        torch.Size([1, 3, 40, 60])
        """
        check_images(images)
        return self._adjusted(images.float().clone() if images.is_floating_point() else images / 255)

    def _adjusted(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in [0, 1] to the encoder's values, written over x."""
        if self.grayscale:
            to_grayscale(x, out=x)
        return standardize(x, out=x) if self.standardize else normalize(x, self.mean, self.std, out=x)


def central_square(images: Tensor, size: int) -> Tensor:
    """(B, 3, H, W), uint8 or floating point in [0, 1], to (B, 3, size, size), float32 in [0, 1]."""
    check_images(images)
    check_size(size)
    height, width = images.shape[2:]
    side = min(height, width)
    box = torch.tensor([(height - side) // 2, (width - side) // 2, side, side], device=images.device)
    return crop_resize(images, box.expand(len(images), 4), size)


def check_preparation(card: Mapping[str, Any], path: Path) -> None:
    """Refuse a card whose preparation cannot be used."""
    side = card.get("image_size")
    if not isinstance(side, int) or isinstance(side, bool) or not 1 <= side <= LARGEST_SIDE:
        raise ValueError(f"{path}: image_size is {shown(side)}, expected a whole number from 1 to {LARGEST_SIDE}")
    stored = card.get("stored_size")
    if stored is not None and (type(stored) is not int or not 1 <= stored <= LARGEST_SIDE):
        raise ValueError(f"{path}: stored_size is {shown(stored)}, expected a whole number from 1 to {LARGEST_SIDE}")
    for key in ("mean", "std"):
        values = card.get(key)
        if not isinstance(values, list | tuple) or len(values) != 3 or not all(map(is_finite, values)):
            raise ValueError(f"{path}: {key} is {shown(values)}, expected three numbers")
    for key in ("grayscale", "standardize"):
        if not isinstance(card.get(key, False), bool):
            raise ValueError(f"{path}: {key} is {shown(card[key])}, expected true or false")
    if min(card["std"]) <= 0:
        raise ValueError(f"{path}: std is {shown(card['std'])}, expected three numbers above 0")


def is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
