"""An encoder in an ONNX file, run by onnxruntime."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.messages import shown
from nearfar.modalities.image.views.prepare import check_preparation
from nearfar.model.encoder import Encoder
from nearfar.model.foreign.encoders import PLAIN, image_encoder


def open_onnx(path: Path, *, size: int | None = None) -> Encoder:
    """The encoder in a file; what its metadata says of the preparation, as `nearfar export` writes it, is used."""
    network = OnnxNetwork(path.expanduser(), size=size)
    side = network.card["image_size"]
    with torch.no_grad():
        features = network(torch.zeros(1, 3, side, side)).shape[1]
    return image_encoder(network, network.card, features=features)


def _stated(metadata: Mapping[str, str], path: Path) -> dict[str, Any]:
    """What the metadata of a file say of the preparation, ImageNet's where they are silent."""
    card = dict(PLAIN)
    for key in sorted(metadata.keys() & PLAIN.keys()):
        try:
            value = json.loads(metadata[key])
        except (ValueError, RecursionError):
            raise ValueError(f"{path}: {key} is {shown(metadata[key])} in its metadata, expected JSON") from None
        card |= {} if value is None else {key: value}
    return card


class OnnxNetwork(nn.Module):
    """An encoder in an ONNX file: one input (B, 3, S, S), first output (B, F) or (B, F, 1, 1), run by onnxruntime.

    Args:
        path: the file. What its metadata says of the preparation, as `nearfar export` writes it, is used, else
            ImageNet's.
        size: pixels of the input, where the file leaves them open.
    """

    def __init__(self, path: Path, *, size: int | None = None) -> None:
        super().__init__()
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
        first, *others = self.session.get_inputs()
        if others or len(first.shape) != 4:
            shapes = ", ".join(str(x.shape) for x in self.session.get_inputs())
            raise ValueError(f"{path} takes inputs of shape {shapes}, expected one of shape (B, 3, S, S)")
        digest = hashlib.blake2b(path.read_bytes(), digest_size=12).digest()
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))  # in place of the weights
        self.input_name = first.name
        self.batch_size = first.shape[0] if isinstance(first.shape[0], int) else None
        stated = self.session.get_modelmeta().custom_metadata_map
        fixed = first.shape[2] if isinstance(first.shape[2], int) else None
        if fixed is not None and size not in (None, fixed):
            raise ValueError(f"{path} takes images of {fixed} pixels, but {size} were asked for; leave the size out")
        card = _stated(stated, path)
        card["image_size"] = fixed or size or card["image_size"]
        check_preparation(card, path)
        self.card = {**card, "backbone": path.name}

    def forward(self, x: Tensor) -> Tensor:
        parts = x.split(self.batch_size or len(x))
        return torch.cat([self._run(part) for part in parts])

    def _run(self, x: Tensor) -> Tensor:
        """(B, F); a file for batches of a fixed size gets zeros for the images that are missing."""
        short = (self.batch_size or len(x)) - len(x)
        full = torch.cat([x, x.new_zeros(short, *x.shape[1:])]) if short else x
        found = self.session.run(None, {self.input_name: full.cpu().float().numpy()})[0]
        h = torch.from_numpy(found)[: len(x)]
        return h.flatten(1) if h.ndim == 4 and h.shape[2:] == (1, 1) else h
