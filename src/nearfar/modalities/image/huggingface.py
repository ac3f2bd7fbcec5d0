"""Image models of `transformers` as backbones."""

import inspect
from typing import Any

from torch import Tensor, nn

from nearfar.modalities.image.views.view import IMAGENET_MEAN, IMAGENET_STD
from nearfar.weights.huggingface import open_model, settings_file

_OF_TEXTS = ("text_model", "text_projection", "logit_scale", "logit_bias")  # of an image-text model
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)
Color = tuple[float, float, float]


class HuggingFaceImages(nn.Module):
    """A model of `transformers`: x (B, 3, S, S) to h (B, F).

    h is what the model pools, where that has no weights of its own, else the first token (a ViT's [CLS]), which is what
    DINO and the like publish. Of a CLIP-like model, h is the projected image.

    Args:
        source: a local folder, or a name of the Hugging Face hub.
        pretrained: with its weights; else random.
    """

    def __init__(self, source: str, *, pretrained: bool = True) -> None:
        super().__init__()
        model: Any = open_model(source, pretrained=pretrained)
        self.projects = hasattr(model, "get_image_features")
        for name in _OF_TEXTS if self.projects else ():
            if getattr(model, name, None) is not None:
                setattr(model, name, None)
        pooler = getattr(model, "pooler", None)
        if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
            model.pooler = None  # many files lack it, and ours has no use for it
        function = model.get_image_features if self.projects else model.forward
        named = inspect.signature(function).parameters
        self.options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in named else {}
        vision = getattr(model.config, "vision_config", model.config)
        size = getattr(vision, "image_size", None)
        self.image_size = int(size) if isinstance(size, int) else 224
        self.model = model.train()

    def save_pretrained(self, folder: Any) -> None:
        """Write a folder that `transformers.AutoModel` opens."""
        self.model.save_pretrained(folder)

    def forward(self, x: Tensor) -> Tensor:
        options = self.options if x.shape[-1] != self.image_size else {}
        if self.projects:
            found = self.model.get_image_features(pixel_values=x, **options)
            z: Tensor = found if isinstance(found, Tensor) else found.pooler_output
            return z
        output = self.model(pixel_values=x, **options)
        h: Tensor | None = getattr(output, "pooler_output", None)
        if h is None:
            y: Tensor = output.last_hidden_state
            h = y.mean((2, 3)) if y.ndim == 4 else y[:, 0]
        return h.flatten(1)


def published_scale(source: str, kind: str = "image") -> tuple[Color, Color]:
    """Mean and deviation of the colors that a model expects, as its preprocessor_config.json has them."""
    said: dict[str, Any] = {}
    for name in ("processor_config.json", "preprocessor_config.json"):
        found = settings_file(source, name) or {}
        said |= found.get("image_processor", found)
    if said.get("do_normalize") is False:
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    usual = {"clip": (CLIP_MEAN, CLIP_STD), "siglip": (HALF, HALF)}.get(kind, (IMAGENET_MEAN, IMAGENET_STD))
    return three(said.get("image_mean"), usual[0]), three(said.get("image_std"), usual[1])


def three(values: Any, otherwise: tuple[float, float, float]) -> tuple[float, float, float]:
    """Three numbers, as a mean or deviation of the colors is, or what to take where there are none."""
    if values is None:
        return otherwise
    try:
        red, green, blue = (float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"mean or std of the images is {values!r}, expected three numbers") from None
    return red, green, blue
