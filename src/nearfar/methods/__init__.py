"""One small file per paper. A method is added by its import here and its name in `__all__`."""

from collections.abc import Sequence
from difflib import get_close_matches

from nearfar.methods.barlow_twins import BarlowTwins
from nearfar.methods.byol import BYOL, BYOLA
from nearfar.methods.clip import CLIP, LiT, SigLIP
from nearfar.methods.cpc import CPC
from nearfar.methods.instdisc import InstDisc
from nearfar.methods.method import Batch, Encoded, Horizon, Method, Step
from nearfar.methods.moco import MoCo, MoCoV1
from nearfar.methods.moco_v3 import MoCoV3
from nearfar.methods.nnclr import NNCLR
from nearfar.methods.simclr import SimCLR, SimCLRV2
from nearfar.methods.simcse import SimCSE
from nearfar.methods.simsiam import SimSiam
from nearfar.methods.supcon import SupCon
from nearfar.methods.vicreg import VICReg
from nearfar.plugins import import_string

__all__ = [
    "BYOL",
    "BYOLA",
    "CLIP",
    "CPC",
    "METHODS",
    "NNCLR",
    "BarlowTwins",
    "Batch",
    "Encoded",
    "Horizon",
    "InstDisc",
    "LiT",
    "Method",
    "MoCo",
    "MoCoV1",
    "MoCoV3",
    "SigLIP",
    "SimCLR",
    "SimCLRV2",
    "SimCSE",
    "SimSiam",
    "Step",
    "SupCon",
    "VICReg",
    "check_views",
    "find_method",
    "known_method",
]

_exported = (globals().get(name) for name in __all__)
_classes = [each for each in _exported if isinstance(each, type) and issubclass(each, Method) and each is not Method]
METHODS: dict[str, type[Method]] = {each.name: each for each in sorted(_classes, key=lambda each: each.name)}
_imported: dict[str, type[Method]] = {}  # from outside, by MODULE:NAME


def find_method(name: str) -> type[Method]:
    """The class of a method by its name; MODULE:NAME is imported."""
    if name not in METHODS and ":" in name:
        _imported[name] = import_string(name, Method, "method")
    elif name not in METHODS:
        close = get_close_matches(name, METHODS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(METHODS)}"
        raise ValueError(f"there is no method {name!r}; {hint}")
    return known_method(name)


def known_method(name: str) -> type[Method]:
    """The same without importing code: `Method` itself stands for one from outside that no one has imported yet.

    A run may be evaluated where its method is not, and a model card from elsewhere must not name code to be run.
    """
    return METHODS.get(name) or _imported.get(name, Method)


def check_views(name: str, preset: str, views: Sequence[object], *, captions: bool = False) -> None:
    """Refuse a preset that makes more views than the method uses, or fewer.

    Args:
        name: of the method.
        views: what the preset makes of a sample. Equal ones are several draws of one view: any number will do.
        captions: whether the caption is one more view, beside one of the image.
    """
    kind = known_method(name)
    if kind is Method:  # not imported here: the run that it was trained in has checked it
        return
    least, most = (1, 1) if captions else (kind.min_views, kind.max_views)
    if len(views) < least or (len(views) > most and any(view != views[0] for view in views)):
        expected = str(most) if least == most else f"{least} to {most}"
        raise ValueError(f"--views {preset} makes {len(views)} views of a sample, and {name} uses {expected}")
