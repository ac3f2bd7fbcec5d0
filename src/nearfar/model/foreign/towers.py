"""Image-text models of other libraries: two towers, one space."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.modalities.image_text.modality import ImageTextModality
from nearfar.model.encoder import Encoder

PREFIXES = ("hf:", "open_clip:")


@dataclass(frozen=True)
class ForeignModel:
    """What another library says of a model. Functions are given the network: a copy is another."""

    name: str
    network: nn.Module  # holds the weights of both towers
    see: Callable[[Any, Tensor], Tensor]  # (B, 3, S, S) prepared images to (B, D)
    tokenize: Callable[[list[str]], Tensor]  # B texts to (B, ...) integers, on the CPU
    read: Callable[[Any, Tensor], Tensor]  # these to (B, D)
    logit_scale: float  # multiplies the cosines
    preparation: Preparation


class ForeignTowers(nn.Module):
    """Both towers, as `nearfar.nn.towers.TwoTowers` has them: calling it takes images, `second` tokens."""

    def __init__(self, model: ForeignModel) -> None:
        super().__init__()
        self.network, self._see, self._read = model.network, model.see, model.read

    def forward(self, x: Tensor) -> Tensor:
        return self._see(self.network, x)

    def second(self, tokens: Tensor) -> Tensor:
        return self._read(self.network, tokens)


class ForeignImageText(ImageTextModality):
    """Images and texts as another library's model takes them."""

    def __init__(self, config: TrainConfig, model: ForeignModel) -> None:
        super().__init__(config)
        self.preparation, self._tokenize = model.preparation, model.tokenize

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        if isinstance(texts, str) or not texts:
            raise ValueError(f"texts is {texts!r}, expected a list of at least one text")
        return self._tokenize(list(texts))

    def save(self, folder: Path) -> None:
        raise ValueError("a model of another library is not saved here; save it with that library")


def as_encoder(model: ForeignModel) -> Encoder:
    """Both towers as one encoder of images and texts."""
    size = model.preparation.size
    network = ForeignTowers(model).eval()
    with torch.no_grad():
        features = network(torch.zeros(1, 3, size, size)).shape[1]
    config = TrainConfig(backbone=model.name, image_size=size, modality="image-text")
    card = {"backbone": model.name, **model.preparation.card(), "modality": "image-text"}
    card["temperature"] = 1 / model.logit_scale
    return Encoder(network, ForeignImageText(config, model), card, features=features)


def open_towers(spec: str, *, untrained: bool = False) -> Encoder:
    """The image-text model that a text names.

    Args:
        spec: "hf:FOLDER" or "hf:NAME", a CLIP-like model of Hugging Face's and its tokenizer (extra `text`);
            "open_clip:NAME=FILE", weights of an architecture that open_clip knows by NAME; "open_clip:NAME" or
            "open_clip:NAME/TAG" with the published ones, which need a network once; or "open_clip:FOLDER" with an
            open_clip_config.json (extra `clip`).
        untrained: the same network as it is first drawn; the weights are not read.

    Images are prepared as all of ours are: the largest central square, resized with antialiasing. The libraries resize
    by a bicubic filter, and SigLIP takes the whole picture for its square; features differ by that much.
    """
    kind, _, what = spec.partition(":")
    if f"{kind}:" not in PREFIXES or not what:
        raise ValueError(f"the model is {spec!r}, expected hf:FOLDER, open_clip:NAME=FILE or open_clip:FOLDER")
    if kind == "hf":
        from nearfar.model.foreign.huggingface import open_huggingface

        return as_encoder(open_huggingface(what, untrained=untrained))
    from nearfar.model.foreign.open_clip import open_open_clip

    return as_encoder(open_open_clip(what, untrained=untrained))


def check_finite(network: nn.Module, source: object) -> None:
    """No weight is infinite or not a number."""
    for name, x in network.state_dict().items():
        if x.is_floating_point() and not bool(x.isfinite().all()):
            raise ValueError(f"{source}: {name} has values that are not finite; get the weights again")
