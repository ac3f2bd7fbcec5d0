"""Building blocks that methods and modalities share, and that your own training loop may use."""

from nearfar.nn.attention import Transformer
from nearfar.nn.bank import Bank
from nearfar.nn.ema import cosine_momentum, ema_distance, ema_update, frozen_copy
from nearfar.nn.heads import predictor, projector
from nearfar.nn.queue import Queue
from nearfar.nn.temperature import LogitScale, LogTemperature
from nearfar.nn.towers import TwoTowers

__all__ = [
    "Bank",
    "LogTemperature",
    "LogitScale",
    "Queue",
    "Transformer",
    "TwoTowers",
    "cosine_momentum",
    "ema_distance",
    "ema_update",
    "frozen_copy",
    "predictor",
    "projector",
]
