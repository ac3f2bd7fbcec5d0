"""Folders of pictures and an encoder to embed them with, made on the spot."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from nearfar.config import TrainConfig
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from tests.support.models import save_model


def scene(seed: int, side: int = 48) -> Image.Image:
    """A picture like no other: a few soft blobs of colour."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    return Image.fromarray(noise).resize((side, side), Image.Resampling.BICUBIC)


def folder_of(path: Path, count: int, *, classes: int = 2, first: int = 0) -> Path:
    """`count` pictures in sub-folders that are their classes."""
    for i in range(first, first + count):
        file = path / f"class{i % classes}" / f"{i:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        scene(i).save(file)
    return path


def run_folder(path: Path, *, name: str = "micro", seed: int = 0, prepare: Preparation | None = None) -> Path:
    """What training leaves behind, without the training."""
    torch.manual_seed(seed)
    path.mkdir(parents=True)
    config = TrainConfig(backbone=name, data="pictures")
    prepare = prepare or Preparation(config.image_size)
    save_model(backbone(name), config, prepare.card(), path, temperature=0.5, data={"fingerprint": "abc", "samples": 4})
    return path


def encoder_in(path: Path) -> Encoder:
    return load(run_folder(path))
