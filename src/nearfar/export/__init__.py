"""The encoder as a file: safetensors and a card, and the shapes other programs read."""

from nearfar.export.card import make_card, read_card
from nearfar.export.model import (
    Encoder,
    Model,
    ReadingEncoder,
    SeriesModel,
    SoundModel,
    TextModel,
    load,
    load_images,
    save_model,
)
from nearfar.export.towers import ForeignTowers, open_towers
from nearfar.export.write import FORMATS, Exported, export

__all__ = [
    "FORMATS",
    "Encoder",
    "Exported",
    "ForeignTowers",
    "Model",
    "ReadingEncoder",
    "SeriesModel",
    "SoundModel",
    "TextModel",
    "export",
    "load",
    "load_images",
    "make_card",
    "open_towers",
    "read_card",
    "save_model",
]
