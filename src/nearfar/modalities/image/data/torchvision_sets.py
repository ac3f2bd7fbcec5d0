"""torchvision's data sets by name."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearfar.data.cache import cache_folder, locked
from nearfar.data.columns import nearest
from nearfar.data.downloads import check_allowed
from nearfar.data.names import TORCHVISION
from nearfar.data.sources import MadeItems
from nearfar.modalities.image.data.arrays import channels_last, picture_shape
from nearfar.modalities.image.data.source import ImageSource

NAMES = TORCHVISION


def known_name(text: str) -> str | None:
    """The data set's own spelling, whatever case and dashes it was written with.

    >>> known_name("cifar-10"), known_name("Fashion_MNIST"), known_name("photos")
    ('CIFAR10', 'FashionMNIST', None)
    """
    return {name.lower(): name for name in NAMES}.get(text.lower().replace("-", "").replace("_", ""))


def torchvision_source(name: str, *, root: Path | None = None, split: str | None = None) -> ImageSource:
    """A data set that is under `root`, or is downloaded to it.

    Args:
        name: as torchvision spells it, or nearly.
        root: where torchvision looks and downloads to; the cache folder where None.
        split: "train" where None; else what the data set knows, such as "test" or STL10's "unlabeled".
    """
    known = known_name(name)
    if known is None:
        raise ValueError(f"torchvision has no data set {name!r} that is known here{nearest(name, NAMES)}")
    folder = root or cache_folder() / "torchvision"
    data = _opened(known, folder, split or "train")
    images: Any = getattr(data, "data", None)
    images = images.numpy() if isinstance(images, torch.Tensor) else images
    whole = isinstance(images, np.ndarray) and images.dtype == np.uint8
    height, width = picture_shape(images.shape, known)[:2] if whole else (0, 1)
    labels, classes = _labels(data)
    return ImageSource(
        description=f"torchvision {known} ({split or 'train'}) in {folder}",
        names=[str(i) for i in range(len(data))],
        load=lambda: channels_last(images) if whole else MadeItems(len(data), lambda index: data[index][0]),
        version=str(len(data)),
        labels=labels,
        classes=classes,
        size=height if height == width else None,
    )


def _opened(name: str, folder: Path, split: str) -> Any:
    import_module("nearfar._torchvision")  # before torchvision itself
    make = getattr(import_module("torchvision.datasets"), name)
    takes = inspect.signature(make).parameters
    arguments: dict[str, Any] = {"root": folder} if "root" in takes else {}
    if "train" in takes:
        if split not in ("train", "test"):
            raise ValueError(f"{name} has the splits 'train' and 'test', not {split!r}")
        arguments["train"] = split == "train"
    elif "split" in takes:
        arguments["split"] = "trainval" if name == "OxfordIIITPet" and split == "train" else split
    try:
        return make(**arguments)
    except (RuntimeError, FileNotFoundError):  # not there, or not whole
        pass
    except ValueError as error:
        raise ValueError(f"{name}: {' '.join(str(error).split())}") from None
    check_allowed(name)
    try:
        with locked(folder):  # of several processes one downloads, the others find it done
            return make(**arguments, download=True)
    except Exception as error:  # torchvision raises of every kind: URLError, HTTPError, RuntimeError, BadZipFile, …
        reason = " ".join(str(error).split()) or type(error).__name__
        raise RuntimeError(
            f"{name} is not in {folder} and cannot be downloaded ({reason}); "
            f"without a network, put torchvision's files of it there or give the folder that has them as root"
        ) from None


def _labels(data: Any) -> tuple[torch.Tensor | None, list[str] | None]:
    values = next(
        (getattr(data, a) for a in ("targets", "labels", "_labels", "_targets", "y") if hasattr(data, a)), None
    )
    if values is None or len(values) != len(data):
        return None, None
    labels = torch.as_tensor(np.asarray(values)).to(torch.int64)
    if labels.ndim != 1 or not len(labels) or int(labels.max()) < 0:  # STL10's unlabelled images have -1
        return None, None
    classes = getattr(data, "classes", None)
    names = [str(i) for i in range(int(labels.max()) + 1)] if classes is None else [_first(name) for name in classes]
    return labels, names


def _first(name: Any) -> str:
    """Imagenette's classes are tuples of names."""
    return str(name[0] if isinstance(name, tuple | list) else name)
