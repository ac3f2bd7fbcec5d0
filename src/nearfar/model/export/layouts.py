"""The weights in the shape that timm, torchvision and the Hugging Face hub read."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from nearfar.data.cache import replacing
from nearfar.metric_text import MetricStyle, metric_text
from nearfar.modalities.image.backbones import OWN, TINY
from nearfar.model.card import Card, transform_of
from nearfar.model.encoder import Encoder
from nearfar.model.export import other_formats
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
    alone = encoder.modality.save_library_model(encoder.backbone, folder, encoder.transform)
    to_nearfar(encoder, card, folder)
    config = _config(encoder, card)
    if "image" in encoder.modality.queries:
        alone = _not_of_timm(encoder, card)
    page = readme(card, alone=alone)
    for name, text in (("config.json", json.dumps(config, indent=1)), ("README.md", page)):
        with replacing(folder / name) as fresh:
            fresh.write_text(text, encoding="utf-8")
    return alone


def _not_of_timm(encoder: Encoder, card: Card) -> str | None:
    """Why timm cannot open an image encoder, in a line; None if it can."""
    name = str(card["backbone"])
    if len(encoder.modality.queries) > 1:
        what = "it has two towers"
    elif isinstance(encoder.backbone, EncoderWithHead):
        what = "it ends in layers of its projection head"
    elif not getattr(encoder.backbone, "published_stem", True):
        what = f"it is a {name} with a stem for small images"
    elif name in OWN or name.startswith(("torchvision:", TRANSFORMERS)):
        what = f"its network is {name}"
    else:
        return None
    return f"timm and AutoModel cannot open this folder, since {what}: open it with nearfar.load, or export onnx"


def push_to_hub(folder: Path, repository: str, *, private: bool = True) -> str:
    """Upload a folder that `to_huggingface` wrote; returns the address. Needs a network and a login."""
    from huggingface_hub import HfApi

    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", repository, re.ASCII) is None or ".." in repository:
        raise ValueError(f"the repository is {repository!r}, expected user/name of letters, digits, '-', '_' and '.'")
    try:
        api = HfApi()
        address = str(api.create_repo(repository, private=private, exist_ok=True))
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Encoder trained with nearfar")
    except Exception as error:  # no network, no login, no permission: each in its own way
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise RuntimeError(
            f"{repository} could not be uploaded ({reason}); the folder {folder} is whole: log in with `hf auth login` "
            f"and upload it with `hf upload {repository} {folder}`"
        ) from None
    return address


def _decimals(metric: Mapping[str, Any]) -> int | None:
    """Of a metric on a card that is no share; older cards do not say which are, but no share is above 1."""
    try:
        return MetricStyle.read(metric["style"]).decimals
    except (KeyError, ValueError):
        return None if -1 <= metric["value"] <= 1 else 2


def readme(card: Card, *, alone: str | None = None) -> str:
    """The hub's page of a model, with what the hub reads in its head.

    Args:
        alone: a line that says that only nearfar opens it; None: what others open it, too.
    """
    texts = card.get("modality") == "text"
    task = "sentence-similarity" if texts else "image-feature-extraction"
    head = ["---", "library_name: nearfar", "tags:", "- contrastive-learning", f"- {task}"]
    if card.get("licence"):
        head.append(f"license: {json.dumps(str(card['licence']).lower())}")
    rows = [
        f"| {m['protocol']} | {m['metric']} | {metric_text(m['value'], _decimals(m))} "
        f"| {m['data']} {m['split']} | {m['n']} |"
        for m in card.get("metrics", [])
        if isinstance(m.get("value"), int | float)
    ]
    table = ["| protocol | metric | value | data | n |", "|---|---|---|---|---|", *rows] if rows else ["Not evaluated."]
    preparation = card.get("preprocessing", "")
    fed = f"sentences; {preparation}" if texts else f"{card['image_size']} × {card['image_size']}; {preparation}"
    use = 'encode(["a sentence", "another"])' if texts else 'encode(["a.jpg", "b.jpg"])'
    temperature = "" if card.get("temperature") is None else f", temperature {card['temperature']:g}"
    return "\n".join(
        [
            *head,
            "---",
            "",
            f"# {card['backbone']}, pretrained with {card.get('method', 'a contrastive method')}",
            "",
            f"{'A text' if texts else 'An image'} encoder trained with nearfar{temperature}. Input: {fed}.",
            "",
            "```python",
            "import nearfar",
            "",
            'encoder = nearfar.load("this/folder")',
            f"features = encoder.{use}  # (2, F)",
            "```",
            "",
            *_opened_by(texts, alone),
            *_about_transform(card),
            *table,
            "",
        ]
    )


def _opened_by(texts: bool, alone: str | None) -> list[str]:
    """How other libraries open the folder."""
    if alone is not None:
        return [f"{alone[0].upper()}{alone[1:]}.", ""]
    if not texts:
        return ['`timm.create_model("local-dir:this/folder", pretrained=True, num_classes=0)` opens it, too.', ""]
    code = ["from sentence_transformers import SentenceTransformer", "", 'model = SentenceTransformer("this/folder")']
    use = 'features = model.encode(["a sentence", "another"])  # the same'
    return ["```python", *code, use, "```", ""]


def _about_transform(card: Card) -> list[str]:
    kind = transform_of(card)
    if kind == "plain":
        return []
    others = (
        "sentence-transformers gives these, too; AutoModel" if card.get("modality") == "text" else "Other libraries"
    )
    return [f"Its embeddings are {kind}. {others} and `encode(..., raw=True)` give the network's features.", ""]


def _config(encoder: Encoder, card: Card) -> dict[str, Any]:
    """What timm reads of a folder on the hub; where the network is not timm's, it says so by the name alone."""
    if "image" not in encoder.modality.queries:
        (part,) = exportables(encoder)
        return {"architecture": card["backbone"], "num_features": encoder.num_features, **part.facts}
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
            "small images, which the plain model has not; use the format nearfar or onnx"
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
