"""The weights in the shape that timm, torchvision and the Hugging Face hub read."""

import json
from pathlib import Path
from typing import Any

from torch import nn

from nearfar.data.cache import replacing
from nearfar.modalities.image.backbones import OWN, TINY
from nearfar.model.card import Card
from nearfar.model.encoder import Encoder
from nearfar.model.export import other_formats
from nearfar.model.export.hub_page import HERE, public_card, readme
from nearfar.model.export.parity import Exportable, check_parity, exportables
from nearfar.model.save import write_model, write_weights
from nearfar.nn.heads import EncoderWithHead
from nearfar.weights.huggingface import TRANSFORMERS


def to_timm(model: Encoder, path: Path) -> float:
    """A safetensors `state_dict` of the plain timm model, checked by loading it into one."""
    encoder = _of_images_alone(model, "timm")
    name = encoder.card["backbone"]
    if name in TINY or name.startswith("torchvision:"):
        raise ValueError(f"the backbone is {name!r}, which timm does not have; use the format {_other(name)}")
    plain = _plain_timm(name, encoder.card["image_size"])
    return _write(encoder, plain, path, f"timm.create_model({name!r}, num_classes=0)")


def to_torchvision(model: Encoder, path: Path) -> float:
    """A safetensors `state_dict` of the plain torchvision model without its classifier."""
    encoder = _of_images_alone(model, "torchvision")
    name = encoder.card["backbone"]
    if not name.startswith("torchvision:"):
        raise ValueError(f"the backbone is {name!r}, expected one of torchvision; use the format {_other(name)}")
    from nearfar.modalities.image.backbones import backbone

    plain = backbone(name, size=224)  # at its published size it is torchvision's own, with an identity for the head
    return _write(encoder, plain, path, f"torchvision's {name.removeprefix('torchvision:')}")


def _of_images_alone(model: Encoder, library: str) -> Encoder:
    if model.modality.queries != ("image",):
        what = " and ".join(f"{kind}s" for kind in model.modality.queries)
        raise ValueError(
            f"the encoder takes {what}, and {library} has networks of images alone; use the format "
            f"{other_formats('folder', 'graph')}"
        )
    return model


def to_nearfar(encoder: Encoder, card: Card, folder: Path) -> str | None:
    """A folder that `nearfar.load` opens: weights, card, and the transform of the features."""
    write_model(encoder.backbone.state_dict(), card, folder, encoder.transform)
    return None


def to_huggingface(encoder: Encoder, card: Card, folder: Path) -> str | None:
    """A folder as on the hub: weights, card, README and config.json; timm opens it where the network is timm's.

    An encoder of texts that sentence-transformers can express is opened by it, and its folder `transformers` by
    AutoModel and AutoTokenizer. Returns a line where nearfar alone opens it.
    """
    card = {**public_card(card), "num_features": encoder.num_features}
    alone = save_for_hub(encoder, card, folder)
    with replacing(folder / "README.md") as fresh:
        fresh.write_text(readme(card, alone=alone, name=str(card.get("hub", HERE))), encoding="utf-8")
    return alone


def save_for_hub(encoder: Encoder, card: Card, folder: Path) -> str | None:
    """All of a folder on the hub but its page; returns a line where nearfar alone opens it.

    Args:
        card: a `public_card`.
    """
    alone = encoder.modality.save_library_model(encoder.backbone, folder, encoder.transform)
    to_nearfar(encoder, card, folder)
    with replacing(folder / "config.json") as fresh:
        fresh.write_text(json.dumps(_config(encoder, card), indent=1), encoding="utf-8")
    if "text" in encoder.modality.queries and "image" not in encoder.modality.queries:
        return alone
    return _not_of_timm(encoder, card)


def _not_of_timm(encoder: Encoder, card: Card) -> str | None:
    """Why timm cannot open an image encoder, in a line; None if it can."""
    name = str(card["backbone"])
    if "image" not in encoder.modality.queries:
        what = f"it is of {encoder.modality.noun}"
    elif len(encoder.modality.queries) > 1:
        what = "it has two towers"
    elif isinstance(encoder.backbone, EncoderWithHead):
        what = "it ends in layers of its projection head"
    elif not getattr(encoder.backbone, "published_stem", True):
        what = f"it is a {name} with a stem for small images"
    elif name in OWN or name.startswith(("torchvision:", TRANSFORMERS)):
        what = f"its network is {name}"
    else:
        return None
    way = "open it with nearfar.load" + (", or export onnx" if "image" in encoder.modality.queries else "")
    return f"timm and AutoModel cannot open this folder, since {what}: {way}"


def _config(encoder: Encoder, card: Card) -> dict[str, Any]:
    """What timm reads of a folder on the hub; where the network is not timm's, it says so by the name alone."""
    if "image" not in encoder.modality.queries:
        facts = {key: value for part in exportables(encoder) for key, value in part.facts.items()}
        return {"architecture": card["backbone"], "num_features": encoder.num_features, **facts}
    side = card["image_size"]
    plain = _not_of_timm(encoder, card) is None
    return {
        "architecture": card["backbone"] if plain else f"nearfar: {card['backbone']}",  # which timm does not know
        "num_classes": 0,
        "num_features": encoder.num_features,
        "pretrained_cfg": {
            "input_size": [3, side, side],
            "mean": card["mean"],
            "std": card["std"],
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "num_classes": 0,
        },
    }


def _write(encoder: Encoder, plain: nn.Module, path: Path, what: str) -> float:
    if isinstance(encoder.backbone, EncoderWithHead):
        raise ValueError(
            f"the encoder ends in layers of its projection head (kept_layers), which {what} has not; use the format "
            "nearfar, huggingface or onnx"
        )
    small = not getattr(encoder.backbone, "published_stem", True)
    own, theirs = encoder.backbone.state_dict(), plain.state_dict()
    wrong = sorted(k for k in own.keys() | theirs.keys() if k not in own or k not in theirs)
    wrong += sorted(k for k in own.keys() & theirs.keys() if own[k].shape != theirs[k].shape)
    if wrong or small:
        raise ValueError(
            f"{what} has another {'stem' if small else wrong[0]}: up to 64 pixels a ResNet is trained with a stem for "
            "small images, which the plain model does not have; use the format nearfar or onnx"
        )
    plain.load_state_dict(own)
    part: Exportable = exportables(encoder.without_transform())[0]
    difference = check_parity(part, plain.eval(), what)
    write_weights(own, path)
    return difference


def _plain_timm(name: str, size: int) -> nn.Module:
    from nearfar import _torchvision  # noqa: F401, before timm

    import timm  # isort: skip

    try:
        network: nn.Module = timm.create_model(name, num_classes=0, img_size=size)
    except TypeError:  # only networks with position embeddings ask for the size
        network = timm.create_model(name, num_classes=0)
    return network


def _other(name: str) -> str:
    if name in TINY:
        return "nearfar, onnx or huggingface"
    return "torchvision" if name.startswith("torchvision:") else "timm"
