"""Model files as training writes them, without the training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from nearfar.config import TrainConfig, completed
from nearfar.modalities import make_modality
from nearfar.modalities.base import Modality
from nearfar.modalities.image.modality import ImageModality
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.card import make_card
from nearfar.model.encoder import Encoder
from nearfar.model.save import write_model
from nearfar.settings import build
from tests.support.sounds import RATE, recordings

KINDS = ("image", "image-text", "sound", "series", "text")
TEXT = {"encoder": "text-micro", "vocab_size": 300, "max_length": 16, "embed_dim": 16}


def save_untrained_of(kind: str, folder: Path) -> Path:
    """A run on data of this modality that has learned nothing, in folder/run; its data lie in folder, too."""
    settings: dict[str, Any]
    if kind == "image":
        settings = {"data": str(_photos(folder / "photos")), "backbone": "micro"}
    elif kind == "image-text":
        settings = {"data": "glyphs:40", "method": "clip", "backbone": "micro", "text": TEXT}
    elif kind == "sound":
        data = recordings(folder / "sounds", words=2, speakers=1, takes=2)
        sound = {"sample_rate": RATE, "max_seconds": 0.5, "crop_seconds": 0.2}
        settings = {"data": str(data), "backbone": "audio-micro", "sound": sound}
    elif kind == "series":
        settings = {"data": "waves:40", "backbone": "dilated-small"}
    else:
        lines = [f"{who} {does}" for who in ("a dog", "the cat", "one") for does in ("runs", "sleeps in the rain")]
        (folder / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        settings = {"data": str(folder / "lines.txt"), "method": "simcse", "backbone": "text-micro", "text": TEXT}
    torch.manual_seed(0)
    return save_untrained(build(TrainConfig, completed(settings), "test"), folder / "run")


def _photos(folder: Path) -> Path:
    folder.mkdir()
    for number in range(6):
        Image.effect_noise((40 + number, 30), 80).convert("RGB").save(folder / f"{number}.png")
    return folder


def save_model(encoder: nn.Module, config: TrainConfig, feeding: Mapping[str, Any], folder: Path, **facts: Any) -> Path:
    """Weights and card of a run; `facts` as in `make_card`."""
    write_model(encoder.state_dict(), make_card(config, feeding, **facts), folder)
    return folder


def save_untrained(config: TrainConfig, folder: Path) -> Path:
    """What a run leaves that has learned nothing but what its modality fits."""
    modality = fitted(config)
    folder.mkdir(parents=True, exist_ok=True)
    modality.save(folder)
    return save_model(modality.encoder(), modality.config, modality.card(), folder)


def fitted(config: TrainConfig) -> Modality:
    """The modality of a run, with its tokenizer or statistics."""
    modality = make_modality(config)
    modality.fit(modality.open(config.data.path))
    return modality


def preparation_of(encoder: Encoder) -> Preparation:
    """What the images of an encoder go through."""
    assert isinstance(encoder.modality, ImageModality)
    return encoder.modality.preparation
