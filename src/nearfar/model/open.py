"""Encoders by name, ours or foreign: a run folder, a network of timm or torchvision, an image-text model, ONNX."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from nearfar.config import TrainConfig, build
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.modalities.image.views.view import IMAGENET_MEAN, IMAGENET_STD
from nearfar.model.card import check_preparation, preparation, shown
from nearfar.model.encoder import CARD, Encoder, Model, load_images, with_card
from nearfar.model.foreign.towers import PREFIXES, open_towers

FOREIGN_SIZE = 224  # pixels, where a network does not say
_PLAIN = {
    "image_size": FOREIGN_SIZE,
    "mean": IMAGENET_MEAN,
    "std": IMAGENET_STD,
    "grayscale": False,
    "standardize": False,
}


class Prepared(Protocol):
    """What can be evaluated: features of prepared images, and the preparation."""

    preparation: Preparation

    def __call__(self, x: Tensor) -> Tensor: ...

    def prepare(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 to the encoder's input."""
        ...


def open_encoder(spec: str, *, size: int | None = None, device: torch.device | str = "cpu") -> Prepared:
    """The encoder that a text names, in evaluation mode.

    Args:
        spec: a run folder; "timm:NAME" or "torchvision:NAME" with their published weights, which need a network once,
            or "timm:NAME=FILE" with those of a local file; "hf:FOLDER", "open_clip:NAME=FILE" or "open_clip:FOLDER", as
            `open_towers` takes them; or a path that ends in .onnx.
        size: pixels of the encoder's input, where it can be chosen; a run has its own.
        device: where it computes; ONNX is on the CPU.
    """
    if spec.endswith(".onnx"):
        return OnnxEncoder(Path(spec), size=size)
    if spec.startswith(("timm:", "torchvision:")):
        return _foreign(spec, size, pretrained=True).to(device).eval()
    if spec.startswith(PREFIXES):
        return open_towers(spec, device=device)
    if Path(spec).expanduser().is_dir():
        return load_images(Path(spec).expanduser()).to(device).eval()
    raise FileNotFoundError(
        f"there is no run folder {spec!r}; expected one, timm:NAME, torchvision:NAME, hf:FOLDER, open_clip:NAME=FILE "
        "or a file that ends in .onnx"
    )


def untrained(spec: str, *, size: int | None = None, device: torch.device | str = "cpu") -> Model | None:
    """The same encoder before it learned anything, as it was first drawn; None for ONNX, which cannot be drawn anew."""
    if spec.endswith(".onnx"):
        return None
    if spec.startswith(("timm:", "torchvision:")):
        torch.manual_seed(0)
        return _foreign(spec, size, pretrained=False).to(device)
    if spec.startswith(PREFIXES):
        torch.manual_seed(0)
        return open_towers(spec, device=device, untrained=True)
    from nearfar.training.build_method import untrained_encoder

    card = json.loads((Path(spec).expanduser() / CARD).read_text(encoding="utf-8"))
    config: TrainConfig = build(TrainConfig, card["config"], CARD)
    return with_card(untrained_encoder(config), card, Path(spec).expanduser()).to(device)


def _foreign(spec: str, size: int | None, *, pretrained: bool) -> Encoder:
    name, _, weights = spec.partition("=")
    name = name.removeprefix("timm:")
    wanted = _published(name)
    size = size or wanted["image_size"]
    file = weights if weights and pretrained else None
    network = backbone(name, size=size, pretrained=pretrained and file is None, weights=file)
    return Encoder(network, {**wanted, "backbone": name, "image_size": size})


def _published(name: str) -> dict[str, Any]:
    """How timm's weights want their images; torchvision's are all ImageNet's."""
    if name.startswith("torchvision:"):
        return _PLAIN
    from nearfar import _torchvision  # noqa: F401, before timm

    from timm.models import get_pretrained_cfg, is_model  # isort: skip

    found = get_pretrained_cfg(name) if is_model(name) else None
    if found is None:
        return _PLAIN
    return {"mean": tuple(found.mean), "std": tuple(found.std), "image_size": int(found.input_size[-1])}


def _stated(metadata: Mapping[str, str], path: Path) -> dict[str, Any]:
    """What the metadata of a file say of the preparation, ImageNet's where they are silent."""
    card = dict(_PLAIN)
    for key in sorted(metadata.keys() & _PLAIN.keys()):
        try:
            value = json.loads(metadata[key])
        except (ValueError, RecursionError):
            raise ValueError(f"{path}: {key} is {shown(metadata[key])} in its metadata, expected JSON") from None
        card |= {} if value is None else {key: value}
    return card


class OnnxEncoder:
    """An encoder in an ONNX file: one input (B, 3, S, S), first output (B, F) or (B, F, 1, 1), run by onnxruntime.

    Args:
        path: the file. What its metadata says of the preparation, as `nearfar export` writes it, is used, else
            ImageNet's.
        size: pixels of the input, where the file leaves them open.
    """

    def __init__(self, path: Path, *, size: int | None = None) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {str(path)!r}, expected an ONNX model")
        try:
            import onnxruntime
        except ImportError:
            raise ImportError(f"{path} needs onnxruntime: pip install 'nearfar[export]'") from None
        try:
            self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises kinds of its own
            reason = " ".join(str(error).split())
            raise ValueError(f"{path} cannot be read as an ONNX model: {reason}") from None
        (first, *others), self.path = self.session.get_inputs(), path
        if others or len(first.shape) != 4:
            shapes = ", ".join(str(x.shape) for x in self.session.get_inputs())
            raise ValueError(f"{path} takes inputs of shape {shapes}, expected one of shape (B, 3, S, S)")
        self.name = first.name
        self.batch = first.shape[0] if isinstance(first.shape[0], int) else None
        said = self.session.get_modelmeta().custom_metadata_map
        fixed = first.shape[2] if isinstance(first.shape[2], int) else None
        if fixed is not None and size not in (None, fixed):
            raise ValueError(f"{path} takes images of {fixed} pixels, but {size} were asked for; leave the size out")
        card = _stated(said, path)
        card["image_size"] = fixed or size or card["image_size"]
        check_preparation(card, path)
        self.preparation = preparation(card)

    def prepare(self, images: Tensor) -> Tensor:
        return self.preparation(images)

    def __call__(self, x: Tensor) -> Tensor:
        parts = x.split(self.batch or len(x))
        return torch.cat([self._run(part) for part in parts])

    def _run(self, x: Tensor) -> Tensor:
        """(B, F); a file for batches of a fixed size gets zeros for the images that are missing."""
        short = (self.batch or len(x)) - len(x)
        full = torch.cat([x, x.new_zeros(short, *x.shape[1:])]) if short else x
        found = self.session.run(None, {self.name: full.cpu().float().numpy()})[0]
        h = torch.from_numpy(found)[: len(x)]
        return h.flatten(1) if h.ndim == 4 and h.shape[2:] == (1, 1) else h
