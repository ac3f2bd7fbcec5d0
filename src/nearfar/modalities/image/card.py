"""How an image encoder is fed, as its card states it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.messages import shown
from nearfar.modalities.image.views.prepare import Preparation

LARGEST_SIDE = 4096  # of an input image; more is a mistake, or a file that wants all the memory


def check_preparation(card: Mapping[str, Any], path: Path) -> None:
    """Refuse a card whose preparation cannot be used."""
    side = card.get("image_size")
    if not isinstance(side, int) or isinstance(side, bool) or not 1 <= side <= LARGEST_SIDE:
        raise ValueError(f"{path}: image_size is {shown(side)}, expected a whole number from 1 to {LARGEST_SIDE}")
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


def preparation_of(card: Mapping[str, Any]) -> Preparation:
    """What the images of a card's encoder go through."""
    return Preparation(
        card["image_size"],
        tuple(card["mean"]),
        tuple(card["std"]),
        grayscale=card.get("grayscale", False),
        standardize=card.get("standardize", False),
    )
