"""One small file per paper, and METHODS, a plain dict of them."""

from collections.abc import Callable

from nearfar.methods.byol import BYOL
from nearfar.methods.method import Batch, Encoded, Method, Step
from nearfar.methods.moco import MoCo, moco_v1
from nearfar.methods.moco_v3 import MoCoV3
from nearfar.methods.simclr import SimCLR, simclr_v2

METHODS: dict[str, Callable[..., Method]] = {
    "byol": BYOL,
    "moco": MoCo,
    "moco_v1": moco_v1,
    "moco_v3": MoCoV3,
    "simclr": SimCLR,
    "simclr_v2": simclr_v2,
}

VIEWS: dict[str, str] = {  # the views each method's paper trains on, by the name of their preset
    "byol": "byol",
    "moco": "moco_v2",
    "moco_v1": "moco_v1",
    "moco_v3": "byol",
    "simclr": "simclr",
    "simclr_v2": "simclr",
}

__all__ = [
    "BYOL",
    "METHODS",
    "VIEWS",
    "Batch",
    "Encoded",
    "Method",
    "MoCo",
    "MoCoV3",
    "SimCLR",
    "Step",
    "moco_v1",
    "simclr_v2",
]
