"""Weights and card as files, each written whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.model.card import Card

MODEL, CARD = "model.safetensors", "card.json"


def write_model(weights: Mapping[str, Tensor], card: Card, folder: Path) -> None:
    """Write `model.safetensors` and `card.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(weights, folder / MODEL)
    with replacing(folder / CARD) as fresh:
        fresh.write_text(json.dumps(card, indent=1, ensure_ascii=False), encoding="utf-8")


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Tensors by name as a safetensors file."""
    with replacing(path) as fresh:
        # Copies: safetensors refuses tensors that share memory, as tied weights do.
        save_file({name: x.detach().cpu().contiguous().clone() for name, x in weights.items()}, fresh)
