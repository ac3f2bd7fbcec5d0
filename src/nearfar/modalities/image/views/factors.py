"""What views may change and need not: colors, orientation and scale. Each is content in some pictures.

A color makes a lemon and not a shirt; a mirrored letter is another one and a mirrored cat is not; cells and satellite
pictures have no upright side; a texture is the same close by, and a small part of a digit is no digit.
"""

from dataclasses import replace
from typing import Any

from nearfar.modalities.config import ViewsConfig
from nearfar.modalities.image.views.view import ImageView


def _jitter(chance: float, strength: float, hue: float, grayscale: float) -> dict[str, float]:
    of_values = dict.fromkeys(("brightness", "contrast", "saturation"), strength)
    return {"jitter": chance, **of_values, "hue": hue, "grayscale": grayscale, "solarize": 0.0}


FACTORS: dict[str, dict[str, dict[str, Any]]] = {  # fields of `ImageView` by setting and option
    "color": {
        "keep": _jitter(0.8, 0.3, hue=0.02, grayscale=0.0),
        "mild": _jitter(0.5, 0.3, hue=0.05, grayscale=0.1),
        "vary": _jitter(0.8, 0.4, hue=0.1, grayscale=0.2),
    },
    "orientation": {
        "keep": {"flip": 0.0, "quarter_turns": 0.0},
        "flip": {"flip": 0.5, "quarter_turns": 0.0},
        "rotate": {"flip": 0.5, "quarter_turns": 1.0},
    },
    "scale": {
        "keep": {"crop_scale": (0.5, 1.0)},
        "vary": {"crop_scale": (0.2, 1.0)},
    },
}


def with_factors(view: ImageView, settings: ViewsConfig) -> ImageView:
    """The same view with the colors, orientation and scale that the settings say; None and "auto" change nothing.

    >>> with_factors(ImageView(size=32), ViewsConfig(orientation="keep", scale="auto")).flip
    0.0
    """
    chosen = {name: getattr(settings, name) for name in FACTORS}
    changes: dict[str, Any] = {}
    for name, option in chosen.items():
        if option not in (None, "auto"):
            changes |= FACTORS[name][option]
    return replace(view, **changes)
