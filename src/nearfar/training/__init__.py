"""Training: the only package that imports Lightning."""

from nearfar import _torchvision  # noqa: F401  before lightning, which imports torchvision
