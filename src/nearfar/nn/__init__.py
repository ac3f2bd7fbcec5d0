"""Building blocks of the methods."""

from nearfar.nn.attention import SelfAttention, Transformer
from nearfar.nn.backbones import backbone
from nearfar.nn.bank import Bank
from nearfar.nn.ema import copy_of, ema_distance, move_towards, rising_momentum
from nearfar.nn.heads import predictor, projector
from nearfar.nn.norm import SplitBatchNorm1d, SplitBatchNorm2d, in_groups, split_batch_norm
from nearfar.nn.queue import Queue
from nearfar.nn.sequence import CPCEncoder, DilatedEncoder, FrameEncoder, sequence_encoder
from nearfar.nn.temperature import LogitScale, LogTemperature
from nearfar.nn.text import TextEncoder, text_encoder
from nearfar.nn.towers import Tower, TwoTowers

__all__ = [
    "Bank",
    "CPCEncoder",
    "DilatedEncoder",
    "FrameEncoder",
    "LogTemperature",
    "LogitScale",
    "Queue",
    "SelfAttention",
    "SplitBatchNorm1d",
    "SplitBatchNorm2d",
    "TextEncoder",
    "Tower",
    "Transformer",
    "TwoTowers",
    "backbone",
    "copy_of",
    "ema_distance",
    "in_groups",
    "move_towards",
    "predictor",
    "projector",
    "rising_momentum",
    "sequence_encoder",
    "split_batch_norm",
    "text_encoder",
]
