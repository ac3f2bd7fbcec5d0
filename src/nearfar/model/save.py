"""Weights and card as files, each written whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.model.card import Card
from nearfar.nn.whitening import EmbeddingTransform

MODEL, CARD = "model.safetensors", "card.json"
TRANSFORM = "embedding.safetensors"  # a file of its own: model.safetensors stays a state_dict that timm opens, too


def write_model(
    weights: Mapping[str, Tensor], card: Card, folder: Path, transform: EmbeddingTransform | None = None
) -> None:
    """Write `model.safetensors`, `embedding.safetensors` where there is a transform, and `card.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(weights, folder / MODEL)
    if transform is None:
        (folder / TRANSFORM).unlink(missing_ok=True)
    else:
        write_weights(transform.state_dict(), folder / TRANSFORM)
    with replacing(folder / CARD) as fresh:
        fresh.write_text(json.dumps(card, indent=1, ensure_ascii=False), encoding="utf-8")


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Tensors by name as a safetensors file."""
    with replacing(path) as fresh:
        # Copies: safetensors refuses tensors that share memory, as tied weights do.
        save_file({name: x.detach().cpu().contiguous().clone() for name, x in weights.items()}, fresh)
