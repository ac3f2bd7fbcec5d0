"""Weights by name and from files: one way to name them, every usual layout, packages that carry them."""

from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names

if TYPE_CHECKING:
    from nearfar.weights.files import read_tensors
    from nearfar.weights.layouts import LayoutFit, fit_layout
    from nearfar.weights.load import load_weights
    from nearfar.weights.names import WeightsName, parse_name
    from nearfar.weights.packages import PACKAGES, is_installed

__all__ = [
    "PACKAGES",
    "LayoutFit",
    "WeightsName",
    "fit_layout",
    "is_installed",
    "load_weights",
    "parse_name",
    "read_tensors",
]
__getattr__ = lazy_names(
    __name__,
    {
        "PACKAGES": "packages",
        "LayoutFit": "layouts",
        "WeightsName": "names",
        "fit_layout": "layouts",
        "is_installed": "packages",
        "load_weights": "load",
        "parse_name": "names",
        "read_tensors": "files",
    },
)
