"""Encoders by name: a run or export folder, a network of timm or torchvision, an image-text model, an ONNX file."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.devices import find_device
from nearfar.modalities import modality_class
from nearfar.modalities.base import Modality
from nearfar.modalities.image.backbones import OWN, backbone
from nearfar.modalities.image.views.view import IMAGENET_MEAN, IMAGENET_STD
from nearfar.model.card import Card, config_of, read_card, transform_of
from nearfar.model.encoder import Encoder
from nearfar.model.save import CARD, MODEL, TRANSFORM
from nearfar.nn.whitening import EmbeddingTransform

FOREIGN_SIZE = 224  # pixels, if a network does not say
PLAIN = {
    "image_size": FOREIGN_SIZE,
    "stored_size": None,
    "mean": IMAGENET_MEAN,
    "std": IMAGENET_STD,
    "grayscale": False,
    "standardize": False,
}
TOWERS = ("hf:", "open_clip:")  # image-text models of other libraries
LIBRARIES = ("timm:", "torchvision:")


def load(
    spec: str | Path,
    *,
    device: torch.device | str = "cpu",
    image_size: int | None = None,
    untrained: bool = False,
) -> Encoder:
    """The encoder that a text names, in evaluation mode; nothing is unpickled.

    Args:
        spec: the folder of a finished run or of an export; "timm:NAME" or "torchvision:NAME" with their published
            weights, which need a network once, or "timm:NAME=FILE" with those of a local file; "hf:FOLDER",
            "open_clip:NAME=FILE" or "open_clip:FOLDER"; or a path that ends in .onnx.
        device: where it computes, such as "cpu", "cuda:1" or "auto"; ONNX is on the CPU.
        image_size: pixels of the input, if they can be chosen; a run has its own.
        untrained: the same network as it is first drawn, before it learned anything.
    """
    name = str(spec)
    device = find_device(device) if isinstance(device, str) else device
    if name.endswith(".onnx"):
        from nearfar.model.foreign.onnx import open_onnx

        if untrained:
            raise ValueError(f"{name} has no untrained version: an ONNX file holds trained weights only")
        return open_onnx(Path(name), size=image_size)
    if name.startswith(LIBRARIES):
        return _from_library(name, image_size, untrained=untrained).to(device).eval()
    if name.startswith(TOWERS):
        from nearfar.model.foreign.towers import open_towers

        if untrained:
            torch.manual_seed(0)
        return open_towers(name, untrained=untrained).to(device).eval()
    folder = Path(name).expanduser()
    if folder.is_file():
        from nearfar.model.export import how_to_open

        raise ValueError(f"{name} is a file, and no ONNX model by its name; {how_to_open(folder)}")
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no run folder {name!r}; expected one, timm:NAME, torchvision:NAME, hf:FOLDER, "
            "open_clip:NAME=FILE or a file that ends in .onnx"
        )
    return (_untrained(folder) if untrained else _from_folder(folder)).to(device).eval()


def _from_folder(folder: Path) -> Encoder:
    if not (folder / MODEL).is_file() or not (folder / CARD).is_file():
        raise FileNotFoundError(f"{folder} holds no {MODEL} and {CARD}, expected the folder of a finished run")
    card = read_card(folder / CARD)
    weights = _read_weights(folder / MODEL)
    modality = modality_of(card, folder)
    if card["backbone"] not in OWN or modality.config.options:  # first without memory: a card may name a huge network
        with contextlib.suppress(RuntimeError), torch.device("meta"):  # a few cannot be built so
            _check_fit(weights, modality.trained_encoder(untrained=True), folder / MODEL, card["backbone"])
    network = modality.trained_encoder(untrained=True)
    _check_fit(weights, network, folder / MODEL, card["backbone"])
    network.load_state_dict(weights)
    return Encoder(network, modality, card, transform=_read_transform(folder, card, network), folder=folder)


def _read_transform(folder: Path, card: Card, network: nn.Module) -> EmbeddingTransform | None:
    """What the card says is done to the network's features."""
    kind, path = transform_of(card), folder / TRANSFORM
    if kind == "plain":
        return None
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no {TRANSFORM}, and its embeddings are {kind}; copy that file, too")
    found = _read_weights(path)
    try:
        transform = EmbeddingTransform(kind, found["mean"], found.get("weight"))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a {kind} transform ({error}); copy or export it again") from None
    width = network.num_features
    if len(transform.mean) != width:
        raise ValueError(f"{path} is of {len(transform.mean)} features, expected {width}; copy or export it again")
    if not all(bool(x.isfinite().all()) for x in found.values()):
        raise ValueError(f"{path} has values that are not finite; train or export again")
    return transform


def _untrained(folder: Path) -> Encoder:
    """The encoder of a run as it was before its first step."""
    card = read_card(folder / CARD)
    modality = modality_of(card, folder)
    torch.manual_seed(modality.config.seed)
    return Encoder(modality.trained_encoder(untrained=True), modality, card)


def modality_of(card: Card, folder: Path) -> Modality:
    """The modality that a card states, with what was learned for it."""
    return modality_class(card.get("modality", "image")).load(config_of(card, str(folder / CARD)), card, folder)


def image_encoder(network: nn.Module, card: Card, *, features: int | None = None) -> Encoder:
    """An image encoder that comes without a run."""
    data = DataConfig(stored_size=card.get("stored_size"))
    config = TrainConfig(data=data, backbone=card["backbone"], image_size=card["image_size"], modality="image")
    modality = modality_class("image").load(config, card, Path())
    return Encoder(network, modality, {**card, **modality.card()}, features=features)


def _from_library(spec: str, size: int | None, *, untrained: bool) -> Encoder:
    name, _, weights = spec.partition("=")
    name = name.removeprefix("timm:")
    wanted = _published(name)
    size = size or wanted["image_size"]
    file = weights if weights and not untrained else None
    if untrained:
        torch.manual_seed(0)
    network = backbone(name, size=size, pretrained=not untrained and file is None, weights=file)
    return image_encoder(network, {**wanted, "backbone": name, "image_size": size})


def _published(name: str) -> dict[str, Any]:
    """How timm's weights want their images; torchvision's are all ImageNet's."""
    if name.startswith("torchvision:"):
        return PLAIN
    from nearfar import _torchvision  # noqa: F401, before timm

    from timm.models import get_pretrained_cfg, is_model  # isort: skip

    found = get_pretrained_cfg(name) if is_model(name) else None
    if found is None:
        return PLAIN
    return {"mean": tuple(found.mean), "std": tuple(found.std), "image_size": int(found.input_size[-1])}


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is not a whole safetensors file ({reason}); copy or export it again") from None


def _check_fit(weights: Mapping[str, Tensor], network: nn.Module, path: Path, name: str) -> None:
    own = network.state_dict()
    for problem, keys in (
        ("lacks", own.keys() - weights.keys()),
        ("has too much:", weights.keys() - own.keys()),
        ("has another shape of", {k for k in own.keys() & weights.keys() if own[k].shape != weights[k].shape}),
    ):
        if keys:
            first, more = min(keys)[:80], f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ValueError(f"{path} does not fit backbone {name!r}: it {problem} {first!r}{more}; export it again")
    for key, x in weights.items():
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise ValueError(f"{path}: {key} has values that are not finite; train or export again")
