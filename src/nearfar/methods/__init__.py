"""One small file per paper. A method is added by its import here and its name in `__all__`."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from torch import nn

from nearfar.methods.barlow_twins import BarlowTwins
from nearfar.methods.byol import BYOL, BYOLA
from nearfar.methods.clap import CLAP
from nearfar.methods.clip import CLIP, LiT, SigLIP
from nearfar.methods.cmc import CMC
from nearfar.methods.cosent import CoSENT
from nearfar.methods.cpc import CPC
from nearfar.methods.densecl import DenseCL
from nearfar.methods.diet import DIET
from nearfar.methods.dino import DINO
from nearfar.methods.instdisc import InstDisc
from nearfar.methods.invaspread import InvaSpread
from nearfar.methods.method import Batch, Encoded, Horizon, Method, Step
from nearfar.methods.mlm import MLM
from nearfar.methods.moco import MoCo, MoCoV1
from nearfar.methods.moco_v3 import MoCoV3
from nearfar.methods.nnclr import NNCLR
from nearfar.methods.pairs import Pairs
from nearfar.methods.pirl import PIRL
from nearfar.methods.scarf import SCARF
from nearfar.methods.simclr import SimCLR, SimCLRV2
from nearfar.methods.simcse import SimCSE
from nearfar.methods.simsiam import SimSiam
from nearfar.methods.supcon import SupCon
from nearfar.methods.swav import SwAV
from nearfar.methods.ts2vec import TS2Vec
from nearfar.methods.vicreg import VICReg
from nearfar.plugins import import_string
from nearfar.python_objects import find_object, is_object

__all__ = [
    "BYOL",
    "BYOLA",
    "CLAP",
    "CLIP",
    "CMC",
    "CPC",
    "DIET",
    "DINO",
    "METHODS",
    "MLM",
    "NNCLR",
    "PIRL",
    "SCARF",
    "BarlowTwins",
    "Batch",
    "CoSENT",
    "DenseCL",
    "Encoded",
    "Horizon",
    "InstDisc",
    "InvaSpread",
    "LiT",
    "Method",
    "MoCo",
    "MoCoV1",
    "MoCoV3",
    "Pairs",
    "SigLIP",
    "SimCLR",
    "SimCLRV2",
    "SimCSE",
    "SimSiam",
    "Step",
    "SupCon",
    "SwAV",
    "TS2Vec",
    "VICReg",
    "choose_views",
    "find_method",
    "known_method",
]

View = TypeVar("View")
_exported = (globals().get(name) for name in __all__)
_classes = [each for each in _exported if isinstance(each, type) and issubclass(each, Method) and each is not Method]
METHODS: dict[str, type[Method]] = {each.name: each for each in sorted(_classes, key=lambda each: each.name)}
_imported: dict[str, type[Method]] = {}  # from outside, by MODULE:NAME


def find_method(name: str) -> type[Method]:
    """The class of a method by its name; MODULE:NAME is imported."""
    if is_object(name) and name not in _imported:
        use_class(find_object(name, "method"), name)
    elif name not in METHODS and ":" in name and not is_object(name):
        _imported[name] = import_string(name, Method, "method")
    elif name not in METHODS and not is_object(name):
        close = get_close_matches(name, METHODS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(METHODS)}"
        raise ValueError(f"there is no method {name!r}; {hint}")
    return known_method(name)


def use_class(method: type[Method] | Method, name: str) -> None:
    """Let a name stand for a method that is an object: a class, or an instance with its own encoder."""
    _imported[name] = method if isinstance(method, type) else _without_layers(type(method))


def _without_layers(kind: type[Method]) -> type[Method]:
    """The class of an instance, whose encoder has already what the method leaves on it."""

    class Given(kind):  # type: ignore[misc, valid-type]
        @classmethod
        def trained_encoder(cls, encoder: nn.Module, features: int, **options: Any) -> nn.Module:
            return encoder

    return Given


def known_method(name: str) -> type[Method]:
    """The same without importing code: `Method` itself stands for one from outside that no one has imported yet.

    A run may be evaluated where its method is not, and a model card from elsewhere must not name code to be run.
    """
    return METHODS.get(name) or _imported.get(name, Method)


def choose_views(
    name: str,
    preset: str,
    views: Sequence[View],
    local: Sequence[View] = (),
    *,
    count: int | None = None,
    captions: bool = False,
) -> list[View]:
    """The recipes of the views that a run makes of a sample, the local ones last.

    Args:
        name: of the method.
        preset: the name of the recipes.
        views: those of the preset. Equal ones are several draws of one view: any number will do.
        local: of small parts, beside them.
        count: of views without the local ones; recipes take turns. None: the method's usual, or the preset's number.
        captions: whether the caption is one more view, beside one of the image.

    Raises:
        ValueError: if that is more than the method uses, or fewer.
    """
    kind = known_method(name)
    unknown = kind is Method  # not imported here: the run that it was trained in has checked it
    least, most = (1, None) if unknown else (1, 1) if captions else (kind.min_views, kind.max_views)
    most_local = None if unknown else kind.max_local
    uses = f"{least} or more" if most is None else str(most) if least == most else f"{least} to {most}"
    if count is not None:
        if count < least or (most is not None and count > most):
            raise ValueError(f"--views.count is {count}, and {name} uses {uses}")
        chosen = [views[i % len(views)] for i in range(count)]
    else:
        chosen = list(views)
        equal, usual = all(view == views[0] for view in views), kind.usual_views or most
        if usual is not None and equal:
            chosen = chosen[:usual]
        if len(chosen) < least or (most is not None and len(chosen) > most):
            raise ValueError(f"--views.preset {preset} makes {len(views)} views of a sample, and {name} uses {uses}")
    if most_local is not None and len(local) > most_local:
        can = f"uses {most_local}" if most_local else "uses none; set --views.local 0"
        raise ValueError(f"there are {len(local)} local views of a sample (--views.local), and {name} {can}")
    return [*chosen, *local]
