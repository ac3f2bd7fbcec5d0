"""The one door to Lightning, which imports torchvision: `nearfar._torchvision` must come first."""

from nearfar import _torchvision  # noqa: F401

# isort: split
import lightning as lightning
