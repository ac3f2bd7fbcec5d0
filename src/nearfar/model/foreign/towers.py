"""Two towers, one space: a foreign image-text model as an encoder of images and of texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.encoder import Encoder, check_prepared

PREFIXES = ("hf:", "open_clip:")  # of the specs of `open_towers`
BATCH = 256  # texts that are embedded at once


@dataclass(frozen=True)
class Foreign:
    """What a foreign library has to say for `ForeignTowers`. Functions are given the network: a copy is another."""

    name: str
    network: nn.Module  # holds the weights of both towers
    see: Callable[[Any, Tensor], Tensor]  # (B, 3, S, S) prepared images to (B, D)
    tokenize: Callable[[list[str]], dict[str, Tensor]]  # texts to what `read` is given, on the CPU
    read: Callable[[Any, dict[str, Tensor]], Tensor]  # to (B, D)
    logit_scale: float  # multiplies the cosines
    preparation: Preparation


class ForeignTowers(Encoder):
    """An encoder of images, used as any other, that also reads texts: cosines of the two are what it was trained for.

    >>> towers = open_towers("hf:models/clip-vit-base-patch32")  # doctest: +SKIP
    >>> towers.embed(images), towers.embed_texts(["a cat"])  # (B, D), (1, D)  # doctest: +SKIP
    """

    def __init__(self, model: Foreign) -> None:
        size = model.preparation.size
        with torch.no_grad():
            features = model.see(model.network.eval(), torch.zeros(1, 3, size, size)).shape[1]
        super().__init__(model.network, {"backbone": model.name, **model.preparation.card()}, features=features)
        self._see, self._tokenize, self._read = model.see, model.tokenize, model.read
        self.logit_scale = model.logit_scale

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, S, S) prepared images to (B, D), of any length; `embed` takes images as they are."""
        check_prepared(x)
        return self._see(self.backbone, x)

    @torch.no_grad()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(B, D) features of texts, of any length, in the space of the images; long texts are cut off."""
        if isinstance(texts, str) or not texts:
            raise ValueError(f"texts is {texts!r}, expected a list of at least one text")
        device = next(self.backbone.parameters()).device
        found = []
        for start in range(0, len(texts), BATCH):
            tokens = self._tokenize(list(texts[start : start + BATCH]))
            found.append(self._read(self.backbone, {name: x.to(device) for name, x in tokens.items()}))
        return torch.cat(found)


def open_towers(spec: str, *, device: torch.device | str = "cpu", untrained: bool = False) -> ForeignTowers:
    """The image-text model that a text names, from local files alone, in evaluation mode.

    Args:
        spec: "hf:FOLDER", a folder of Hugging Face's with a CLIP or SigLIP model and its tokenizer (extra `text`);
            "open_clip:NAME=FILE", weights of an architecture that open_clip knows by NAME; or "open_clip:FOLDER" with
            an open_clip_config.json (extra `clip`).
        device: where it computes.
        untrained: the same network as it is first drawn; the weights are not read.

    Images are prepared as all of ours are: the largest central square, resized with antialiasing. The libraries resize
    by a bicubic filter, and SigLIP takes the whole picture for its square; features differ by that much.
    """
    kind, _, what = spec.partition(":")
    if f"{kind}:" not in PREFIXES or not what:
        raise ValueError(f"the model is {spec!r}, expected hf:FOLDER, open_clip:NAME=FILE or open_clip:FOLDER")
    if kind == "hf":
        from nearfar.model.foreign.huggingface import open_huggingface

        return ForeignTowers(open_huggingface(what, untrained=untrained)).to(device).eval()
    from nearfar.model.foreign.open_clip import open_open_clip

    return ForeignTowers(open_open_clip(what, untrained=untrained)).to(device).eval()


def check_finite(network: nn.Module, source: object) -> None:
    """No weight is infinite or not a number."""
    for name, x in network.state_dict().items():
        if x.is_floating_point() and not bool(x.isfinite().all()):
            raise ValueError(f"{source}: {name} has values that are not finite; get the weights again")


def three(values: Any, otherwise: tuple[float, float, float]) -> tuple[float, float, float]:
    """Three numbers, as a mean or deviation of the colours is, or what to take where there are none."""
    if values is None:
        return otherwise
    try:
        red, green, blue = (float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"mean or std of the images is {values!r}, expected three numbers") from None
    return red, green, blue


def one_line(error: BaseException) -> str:
    """What went wrong, in a line of bearable length."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
