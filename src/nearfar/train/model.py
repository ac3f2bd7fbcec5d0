"""The trained encoder as a file: safetensors beside a card that says how to feed it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import nearfar
from nearfar.config import TrainConfig
from nearfar.nn.backbones import backbone
from nearfar.views import Preparation

MODEL, CARD = "model.safetensors", "card.json"


def save_model(encoder: nn.Module, config: TrainConfig, preparation: Preparation, folder: Path) -> None:
    """Write `model.safetensors` and `card.json`, each whole or not at all."""
    weights = {name: x.detach().cpu().contiguous() for name, x in encoder.state_dict().items()}
    save_file(weights, folder / f".{MODEL}.unfinished")
    (folder / f".{MODEL}.unfinished").replace(folder / MODEL)
    card = {
        "format": "nearfar encoder",
        "nearfar": nearfar.__version__,
        "backbone": config.backbone,
        "image_size": preparation.size,
        "mean": preparation.mean,
        "std": preparation.std,
        "grayscale": preparation.grayscale,
        "standardize": preparation.standardize,
        "method": config.method,
        "config": asdict(config),
    }
    (folder / f".{CARD}.unfinished").write_text(json.dumps(card, indent=1, ensure_ascii=False), encoding="utf-8")
    (folder / f".{CARD}.unfinished").replace(folder / CARD)


class Encoder(nn.Module):
    """A trained backbone with its preparation: images in, features out.

    >>> encoder = nearfar.load("runs/mine")  # doctest: +SKIP
    >>> features = encoder.embed(images)  # (B, 3, H, W) uint8 to (B, F)  # doctest: +SKIP
    """

    def __init__(self, backbone: nn.Module, card: dict[str, Any]) -> None:
        super().__init__()
        self.backbone, self.card = backbone, card
        self.num_features: int = backbone.num_features  # type: ignore[assignment]
        self.preparation = Preparation(
            card["image_size"],
            tuple(card["mean"]),
            tuple(card["std"]),
            grayscale=card.get("grayscale", False),
            standardize=card.get("standardize", False),
        )

    def prepare(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) uint8, or floating point in [0, 1], to the backbone's input."""
        return self.preparation(images)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, S, S) prepared input to (B, F)."""
        h: Tensor = self.backbone(x)
        return h

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """(B, F) features of raw images."""
        return self(self.prepare(images))  # type: ignore[no-any-return]


def load(run: str | Path) -> Encoder:
    """The encoder of a finished run, in evaluation mode; nothing is unpickled."""
    folder = Path(run)
    if not (folder / MODEL).is_file() or not (folder / CARD).is_file():
        raise FileNotFoundError(f"{folder} holds no {MODEL} and {CARD}, expected the folder of a finished run")
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    network = backbone(card["backbone"], size=card["image_size"])
    network.load_state_dict(load_file(folder / MODEL))
    return Encoder(network, card).eval()
