"""What is known of image weights by their name: the backbone they are of, and how they want their images."""

from pathlib import Path
from typing import Any

import torch

from nearfar.modalities.image.backbones import OWN, backbone, published_backbone
from nearfar.modalities.image.huggingface import published_scale
from nearfar.modalities.image.views.view import IMAGENET_MEAN, IMAGENET_STD
from nearfar.weights.files import read_content, read_tensors, stated_architecture, tensors_of
from nearfar.weights.huggingface import TRANSFORMERS, model_kind, settings_file
from nearfar.weights.layouts import MisfitError, fit_layout
from nearfar.weights.load import stated_card, weights_file
from nearfar.weights.names import WeightsName
from nearfar.weights.packages import find_package

USUAL_SIZE = 224  # pixels, if a network does not say
NEAR = 0.5  # of its tensors that fit a network, for that to be named as the nearest
SMALL_SIZE = 32  # of a ResNet with a stem for small images, as on CIFAR
# What files without a stated architecture are compared with, by a name that all networks of the kind have.
_CANDIDATES = {
    "layer1.0.conv1.weight": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2"),
    "4.0.conv1.weight": ("resnet18", "resnet34", "resnet50", "resnet101"),
    "patch_embed.proj.weight": (
        *("vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224", "vit_large_patch16_224"),
        *("vit_small_patch8_224", "vit_base_patch8_224", "vit_small_patch14_dinov2", "vit_base_patch14_dinov2"),
        *("vit_base_patch32_224", "swin_tiny_patch4_window7_224", "swin_base_patch4_window7_224"),
    ),
    "stages.0.blocks.0.conv_dw.weight": ("convnext_tiny", "convnext_small", "convnext_base"),
    "conv_stem.weight": ("tf_efficientnet_lite0", "efficientnet_b0", "mobilenetv3_small_100", "mobilenetv3_large_100"),
    "_conv_stem.weight": ("tf_efficientnet_lite0", "tf_efficientnet_b0"),
    "features.0.0.weight": (
        "torchvision:mobilenet_v3_small",
        "torchvision:mobilenet_v2",
        "torchvision:efficientnet_b0",
    ),
    "stem.weight": tuple(name for name in OWN if name not in ("quick", "strokes")),
    "layers.0.weight": ("strokes",),
}


def backbone_of(start: WeightsName) -> str | None:
    """The backbone that weights are of; None if that is not known."""
    if (published := published_backbone(start)) is not None:
        return published
    if start.kind in ("timm", "torchvision"):
        return start.name if start.kind == "timm" else f"torchvision:{start.name}"
    if start.kind == "package":
        return find_package(start.name).backbone
    if start.kind == "folder":
        stated = stated_card(Path(start.name)).get("backbone")
        return stated if isinstance(stated, str) else None
    file = weights_file(start)
    return None if file is None else identify(file)


def check_reads_images(start: WeightsName) -> None:
    """Refuse a package or a model of transformers that reads texts or sounds."""
    if start.kind == "package":
        kind = find_package(start.name).modality
    elif start.kind == "hf":
        kind = model_kind(start.name)
    else:
        return
    if kind not in ("image", "image-text"):
        raise ValueError(f"the weights {start} read {kind}s, and the data hold images; expected weights of images")


def unknown_network(file: Path) -> str:
    """A line for a file that no common network fits: the one that is nearest, and what differs."""
    name, misfit = _compare(file)
    if misfit is None or misfit.share < NEAR:
        return f"the network of {file} is not known by its tensors"
    return f"the network of {file} is not known; nearest is {name}: {misfit}"


def identify(file: Path) -> str | None:
    """The backbone of a file: what it states, if timm knows it, else the first common one that it fits wholly."""
    name, misfit = _compare(file)
    return name if misfit is None else None


def _compare(file: Path) -> tuple[str | None, MisfitError | None]:
    """The backbone that a file fits, or the nearest with what differs; None if there is nothing to compare with."""
    content = read_content(file)
    if not (tensors := tensors_of(content)):
        raise ValueError(f"{file} holds no tensors by name, expected the weights of a network")
    stated = stated_architecture(content)
    roots = {key: names for key, names in _CANDIDATES.items() if any(_ends(name, key) for name in tensors)}
    names = [each for found in roots.values() for each in found]
    nearest: tuple[str | None, MisfitError | None] = (None, MisfitError("no common network has such names"))
    for name in dict.fromkeys([*([stated] if stated is not None else []), *names]):
        try:
            with torch.device("meta"):
                network = backbone(name, size=USUAL_SIZE, published_stem=True)
            fit_layout(tensors, network)
            return name, None
        except MisfitError as error:
            if _fits_small_stem(tensors, name):
                return name, None
            if nearest[1] is None or error.share > nearest[1].share:
                nearest = name, error
        except (ValueError, RuntimeError):  # of an unknown name, or a network that cannot be made without memory
            continue
    return nearest


def size_of_small_stem(start: WeightsName) -> int | None:
    """Pixels for the weights of a ResNet with a stem for small images; None for all others.

    A run says at which size it was trained; a file is taken for one of CIFAR.
    """
    if start.kind == "folder":
        card = stated_card(Path(start.name))
        side = card.get("image_size")
        return side if card.get("published_stem") is False and isinstance(side, int) else None
    if (file := weights_file(start)) is None:
        return None
    tensors = read_tensors(file)
    stems = (x for name, x in tensors.items() if _ends(name, "conv1.weight") and x.ndim == 4 and x.shape[1] == 3)
    small = any(max(x.shape[2:]) == 3 for x in stems)
    return SMALL_SIZE if small and any(_ends(name, "layer1.0.conv1.weight") for name in tensors) else None


def _fits_small_stem(tensors: dict[str, torch.Tensor], name: str) -> bool:
    if "resnet" not in name:
        return False
    try:
        with torch.device("meta"):
            network = backbone(name, size=32, published_stem=False)
        fit_layout(tensors, network)
    except MisfitError:
        return False
    return True


def _ends(name: str, key: str) -> bool:
    return name == key or name.endswith(f".{key}")


def published_preparation(name: str, start: WeightsName | None = None) -> dict[str, Any]:
    """Size, mean and deviation of the images that a backbone was published with; ImageNet's if it does not say."""
    plain = {"image_size": USUAL_SIZE, "mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    if start is not None and start.kind == "folder":
        card = stated_card(Path(start.name))
        return plain | {key: card[key] for key in plain if key in card}
    if name.startswith(TRANSFORMERS):
        source = name.removeprefix(TRANSFORMERS)
        config = settings_file(source, "config.json") or {}
        mean, std = published_scale(source, str(config.get("model_type")))
        side = config.get("vision_config", config).get("image_size", USUAL_SIZE)
        return {"image_size": side if isinstance(side, int) else USUAL_SIZE, "mean": mean, "std": std}
    if name.startswith("torchvision:") or name in OWN:
        return plain
    from nearfar import _torchvision  # noqa: F401, before timm

    from timm.models import get_pretrained_cfg, is_model  # isort: skip

    found = get_pretrained_cfg(name) if is_model(name) else None
    if found is None:
        return plain
    return {"image_size": int(found.input_size[-1]), "mean": tuple(found.mean), "std": tuple(found.std)}
