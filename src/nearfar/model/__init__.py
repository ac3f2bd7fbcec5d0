"""The trained encoder: one class, its card, loading, saving and export."""

from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names

if TYPE_CHECKING:
    from nearfar.model.card import make_card, read_card
    from nearfar.model.encoder import Encoder
    from nearfar.model.foreign.encoders import image_encoder
    from nearfar.model.load import modality_of
    from nearfar.model.save import write_model, write_weights

__all__ = [
    "Encoder",
    "image_encoder",
    "make_card",
    "modality_of",
    "read_card",
    "write_model",
    "write_weights",
]
__getattr__ = lazy_names(
    __name__,
    {
        "Encoder": "encoder",
        "image_encoder": "foreign.encoders",
        "make_card": "card",
        "modality_of": "load",
        "read_card": "card",
        "write_model": "save",
        "write_weights": "save",
    },
)
