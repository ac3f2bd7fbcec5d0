"""Encoders of other libraries, of packages and of files: images, texts and waves."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.modalities import make_modality, modality_class
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.published import (
    SMALL_SIZE,
    USUAL_SIZE,
    backbone_of,
    published_preparation,
    unknown_network,
)
from nearfar.modalities.image.views.view import IMAGENET_MEAN, IMAGENET_STD
from nearfar.modalities.sound.huggingface import stated_rate
from nearfar.modalities.text.config import TextConfig
from nearfar.modalities.text.start import (
    stated_head,
    stated_length,
    stated_pooling,
    states_normalization,
    unread_modules,
)
from nearfar.model.card import Card, foreign_card
from nearfar.model.encoder import Encoder
from nearfar.progress import print_note
from nearfar.weights.files import read_tensors
from nearfar.weights.huggingface import TRANSFORMERS
from nearfar.weights.load import model_folder_hint
from nearfar.weights.names import WeightsName
from nearfar.weights.packages import find_package

PLAIN = {
    "image_size": USUAL_SIZE,
    "stored_size": None,
    "mean": IMAGENET_MEAN,
    "std": IMAGENET_STD,
    "grayscale": False,
    "standardize": False,
}


def image_encoder(network: nn.Module, card: Card, *, features: int | None = None) -> Encoder:
    """An image encoder that comes without a run.

    Args:
        card: its backbone, and how images are prepared; `origin` and `licence`, if they are known.
    """
    data = DataConfig(stored_size=card.get("stored_size"))
    config = TrainConfig(data=data, backbone=card["backbone"], image_size=card["image_size"], modality="image")
    modality = modality_class("image").load(config, card, Path())
    stated = foreign_card(config, modality.card(), str(card.get("origin") or card["backbone"]), card.get("licence"))
    return Encoder(network, modality, stated, features=features)


def open_images(name: WeightsName, size: int | None, *, untrained: bool) -> Encoder:
    """An image encoder of timm, torchvision, transformers, a package or a file."""
    known = backbone_of(name)
    if known is None:
        way = "open_clip:NETWORK" if _is_image_text(name) else "timm:NETWORK"
        hint = model_folder_hint(Path(name.name)) if name.kind == "file" else ""
        problem = unknown_network(Path(name.name)) if name.kind == "file" else f"the network of {name} is not known"
        also = "" if _is_image_text(name) else f" or torchvision:NETWORK={name}"
        raise ValueError(f"{problem}; {hint or f'name it: {way}={name}{also}'}")
    wanted = PLAIN if name.kind == "file" else {**PLAIN, **published_preparation(known)}
    side = size or wanted["image_size"]
    assert isinstance(side, int)
    weights = None if untrained else str(name)
    network = backbone(known, size=side, weights=weights, published_stem=True if untrained else None)
    stem = getattr(network, "published_stem", True)
    if size is None and not stem:
        side = SMALL_SIZE
        print_note(f"{name} is a {known} with a stem for small images: it reads {side} pixels, unless a size is given")
    licence = find_package(name.name).licence if name.kind == "package" else None
    told = name.file is not None or name.kind == "file"
    if told and (found := getattr(network, "loaded", None)) is not None:
        print_note(f"{known} from {found}")
    card = {**wanted, "backbone": known, "image_size": side, "published_stem": stem}
    return image_encoder(network, {**card, "origin": str(name), "licence": licence})


def _is_image_text(name: WeightsName) -> bool:
    """Whether a file holds both towers, as those of OpenAI and open_clip do."""
    names = read_tensors(Path(name.name)) if name.kind == "file" else {}
    return any("visual." in key for key in names) and any(key.endswith("token_embedding.weight") for key in names)


def open_texts(source: str, origin: str, *, untrained: bool) -> Encoder:
    """A text model of transformers as it was published: its tokenizer, pooling, and length of texts."""
    text = TextConfig(
        encoder=TRANSFORMERS + source,
        tokenizer=source,
        max_length=stated_length(source),
        pooling=stated_pooling(source),  # type: ignore[arg-type]
        normalize=states_normalization(source),
        head=stated_head(source) is not None,
        weights=origin,
    )
    if unread := unread_modules(source):
        print_note(f"{origin}: {', '.join(unread)} of its modules.json is left out")
    config = TrainConfig(backbone=text.encoder, text=text, modality="text", weights=origin)
    modality = make_modality(config)
    network = modality.encoder(untrained=untrained)
    licence = find_package(origin.partition(":")[2]).licence if origin.startswith("package:") else None
    return Encoder(network, modality, foreign_card(config, modality.card(), origin, licence))


def open_sounds(source: str, origin: str, *, untrained: bool) -> Encoder:
    """A model of waves of transformers as it was published."""
    config = TrainConfig(backbone=TRANSFORMERS + source, modality="sound", weights=origin)
    config = replace(config, sound=replace(config.sound, sample_rate=stated_rate(source)))
    modality = make_modality(config)
    network = modality.encoder(untrained=untrained)
    return Encoder(network, modality, foreign_card(config, modality.card(), origin))
