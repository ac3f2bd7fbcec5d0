"""The trained encoder as a file: safetensors beside a card that says how to feed it."""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.cache import replacing
from nearfar.export.card import Card, make_card, preparation, read_card
from nearfar.nn.backbones import OWN, backbone
from nearfar.views import Preparation

MODEL, CARD = "model.safetensors", "card.json"


def save_model(
    encoder: nn.Module,
    config: TrainConfig,
    prepare: Preparation,
    folder: Path,
    *,
    temperature: float | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write `model.safetensors` and `card.json` of a run, each whole or not at all."""
    write_model(encoder.state_dict(), make_card(config, prepare, temperature=temperature, data=data), folder)


def write_model(weights: Mapping[str, Tensor], card: Card, folder: Path) -> None:
    """Write weights and card, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(weights, folder / MODEL)
    with replacing(folder / CARD) as fresh:
        fresh.write_text(json.dumps(card, indent=1, ensure_ascii=False), encoding="utf-8")


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Tensors by name as a safetensors file."""
    with replacing(path) as fresh:
        # Copies: safetensors refuses tensors that share memory, as tied weights do.
        save_file({name: x.detach().cpu().contiguous().clone() for name, x in weights.items()}, fresh)


class Encoder(nn.Module):
    """A trained backbone with its preparation: images in, features out.

    >>> encoder = nearfar.load("runs/mine")  # doctest: +SKIP
    >>> features = encoder.embed(images)  # (B, 3, H, W) uint8 to (B, F)  # doctest: +SKIP
    """

    def __init__(self, backbone: nn.Module, card: Card) -> None:
        super().__init__()
        self.backbone, self.card = backbone, card
        self.num_features: int = backbone.num_features  # type: ignore[assignment]
        self.preparation = preparation(card)

    def prepare(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) uint8, or floating point in [0, 1], to the backbone's input."""
        return self.preparation(images)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, S, S) prepared input to (B, F); `embed` takes images as they are."""
        if not x.is_floating_point():
            raise TypeError(
                f"the encoder was given {x.dtype}, expected prepared images; encoder.embed(images) prepares"
            )
        h: Tensor = self.backbone(x)
        return h

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """(B, F) features of raw images."""
        return self(self.prepare(images))  # type: ignore[no-any-return]

    def digest(self) -> str:
        """A short text that is another as soon as any weight or the preparation is."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(repr([self.card["backbone"], self.preparation]).encode())
        for name, x in sorted(self.backbone.state_dict().items()):
            digest.update(name.encode())
            digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def load(run: str | Path) -> Encoder:
    """The encoder of a finished run, or of an exported folder, in evaluation mode; nothing is unpickled."""
    folder = Path(run)
    if not (folder / MODEL).is_file() or not (folder / CARD).is_file():
        raise FileNotFoundError(f"{folder} holds no {MODEL} and {CARD}, expected the folder of a finished run")
    card = read_card(folder / CARD)
    weights = _read_weights(folder / MODEL)
    build = partial(backbone, card["backbone"], size=card["image_size"], published_stem=card.get("pretrained") is True)
    if card["backbone"] not in OWN:  # first without memory: a card may name a huge network
        with contextlib.suppress(RuntimeError), torch.device("meta"):  # a few cannot be built so
            _check_fit(weights, build(), folder / MODEL, card["backbone"])
    network = build()
    _check_fit(weights, network, folder / MODEL, card["backbone"])
    network.load_state_dict(weights)
    return Encoder(network, card).eval()


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is not a whole safetensors file ({reason}); copy or export it again") from None


def _check_fit(weights: Mapping[str, Tensor], network: nn.Module, path: Path, name: str) -> None:
    own = network.state_dict()
    for problem, keys in (
        ("lacks", own.keys() - weights.keys()),
        ("has too much:", weights.keys() - own.keys()),
        ("has another shape of", {k for k in own.keys() & weights.keys() if own[k].shape != weights[k].shape}),
    ):
        if keys:
            first, more = min(keys)[:80], f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ValueError(f"{path} does not fit backbone {name!r}: it {problem} {first!r}{more}; export it again")
    for key, x in weights.items():
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise ValueError(f"{path}: {key} has values that are not finite; train or export again")
