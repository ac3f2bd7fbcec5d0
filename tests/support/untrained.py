"""A run folder with an encoder that is not trained: for tests to which its features do not matter."""

from pathlib import Path
from typing import Any

import torch

from nearfar.config import TrainConfig
from nearfar.modalities import make_modality
from nearfar.model.card import make_card
from nearfar.model.save import write_model


def untrained_run(folder: Path, seed: int = 7, card: dict[str, Any] | None = None, **settings: Any) -> Path:
    """Weights, card and config.yaml of a run.

    Args:
        card: how to feed the encoder, if not as the settings say.
    """
    config = TrainConfig(**({"data": "glyphs:100", "backbone": "micro"} | settings))
    modality = make_modality(config)
    torch.manual_seed(seed)
    write_model(modality.encoder().state_dict(), make_card(config, modality.card() | (card or {})), folder)
    (folder / "config.yaml").write_text(config.to_yaml())
    return folder
