"""One small file per paper, and METHODS, a plain dict of them."""

from collections.abc import Callable

from nearfar.methods.barlow_twins import BarlowTwins
from nearfar.methods.byol import BYOL, byol_a
from nearfar.methods.clip import CLIP, lit, siglip
from nearfar.methods.cpc import CPC
from nearfar.methods.instdisc import InstDisc
from nearfar.methods.method import Batch, Encoded, Horizon, Method, Step
from nearfar.methods.moco import MoCo, moco_v1
from nearfar.methods.moco_v3 import MoCoV3
from nearfar.methods.nnclr import NNCLR
from nearfar.methods.simclr import SimCLR, simclr_v2
from nearfar.methods.simcse import SimCSE
from nearfar.methods.simsiam import SimSiam
from nearfar.methods.supcon import SupCon
from nearfar.methods.vicreg import VICReg

# Each is called as Method(encoder, features=encoder.num_features, samples=..., **the paper's hyperparameters).
METHODS: dict[str, Callable[..., Method]] = {
    "barlow_twins": BarlowTwins,
    "byol": BYOL,
    "byol_a": byol_a,
    "clip": CLIP,
    "cpc": CPC,
    "instdisc": InstDisc,
    "lit": lit,
    "moco": MoCo,
    "moco_v1": moco_v1,
    "moco_v3": MoCoV3,
    "nnclr": NNCLR,
    "siglip": siglip,
    "simclr": SimCLR,
    "simclr_v2": simclr_v2,
    "simcse": SimCSE,
    "simsiam": SimSiam,
    "supcon": SupCon,
    "vicreg": VICReg,
}

# The views each paper trains on, by the name of their preset.
VIEWS: dict[str, str] = {
    "barlow_twins": "byol",
    "byol": "byol",
    "clip": "clip",
    "instdisc": "moco_v1",
    "lit": "clip",
    "moco": "moco_v2",
    "moco_v1": "moco_v1",
    "moco_v3": "byol",
    "nnclr": "simclr",
    "siglip": "clip",
    "simclr": "simclr",
    "simclr_v2": "simclr",
    "simsiam": "moco_v2",
    "supcon": "simclr",
    "vicreg": "byol",
}

__all__ = [
    "BYOL",
    "CLIP",
    "CPC",
    "METHODS",
    "NNCLR",
    "VIEWS",
    "BarlowTwins",
    "Batch",
    "Encoded",
    "Horizon",
    "InstDisc",
    "Method",
    "MoCo",
    "MoCoV3",
    "SimCLR",
    "SimCSE",
    "SimSiam",
    "Step",
    "SupCon",
    "VICReg",
    "byol_a",
    "lit",
    "moco_v1",
    "siglip",
    "simclr_v2",
]
