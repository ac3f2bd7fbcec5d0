"""The encoder as a file: safetensors and a card, and the shapes other programs read."""

from nearfar.export.card import make_card, read_card
from nearfar.export.model import Encoder, load, save_model
from nearfar.export.towers import TwoTowers, open_towers
from nearfar.export.write import FORMATS, Exported, export

__all__ = [
    "FORMATS",
    "Encoder",
    "Exported",
    "TwoTowers",
    "export",
    "load",
    "make_card",
    "open_towers",
    "read_card",
    "save_model",
]
