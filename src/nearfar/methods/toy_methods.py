"""Each method, small, with batches for it: what the certificate and the tests look at."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.distributed.certificate import Subject, called
from nearfar.methods import METHODS
from nearfar.methods.method import Batch, Method
from nearfar.nn.sequence import CPCEncoder
from nearfar.nn.text import TextEncoder
from nearfar.nn.towers import TwoTowers
from nearfar.plugins import named

SAMPLES = 64  # of the data set that the batches are from
OPTIONS: dict[str, dict[str, Any]] = {  # the papers' widths, cut down
    "barlow_twins": {"dim": 12, "hidden": 16},
    "byol": {"dim": 8, "hidden": 16},
    "byol_a": {"dim": 8, "hidden": 16},
    "cpc": {"horizons": 3, "positions": 4},
    "instdisc": {"dim": 8, "noise": 24},
    "moco": {"dim": 8, "queue_size": 30, "group": 4},
    "moco_v1": {"dim": 8, "queue_size": 30, "group": 4},
    "moco_v3": {"dim": 8, "hidden": 16},
    "nnclr": {"dim": 8, "hidden": 16, "predictor_hidden": 16, "queue_size": 30},
    "simclr": {"dim": 8},
    "simclr_v2": {"dim": 8},
    "simcse": {"mlm": 0.1, "mask_rate": 0.4},
    "simsiam": {"dim": 8},
    "supcon": {"dim": 8},
    "vicreg": {"dim": 12, "hidden": 16},
}
_TOWERS, _WORDS, _LENGTH = ("clip", "lit", "siglip"), 40, 8


class Pictures(nn.Sequential):
    """(B, 3, 6, 6) to (B, 16), with batch-norm and dropout."""

    num_features = 16

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.Tanh(),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(128, 16),
        )


def subjects(names: Sequence[str] = tuple(METHODS)) -> list[Subject]:
    """What the certificate takes."""
    return [Subject(name, specimen(name), [specimen_batch(name, seed=seed) for seed in range(2)]) for name in names]


def subject_named(place: str) -> Subject:
    """One's own method: MODULE:NAME of a class that is made as those of `METHODS` are, or of a function without
    arguments that gives the method and a list of batches for it.

    A class is called as `Name(encoder, features=16, samples=64)` and tried on small images of (3, 6, 6), in two views.
    """
    made, name = named(place), place.partition(":")[2]
    if not callable(made) or (isinstance(made, type) and not issubclass(made, nn.Module)):
        what = f"{made.__name__}, no nn.Module" if isinstance(made, type) else f"of type {type(made).__name__}"
        raise ValueError(
            f"{place} is {what}, expected a class such as nearfar.methods.Method, or a function without arguments that "
            "gives a method and a list of batches"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if not isinstance(made, type) and not inspect.signature(made).parameters:
            given = called(f"{place}() failed", made)
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise ValueError(f"{place}() gave {_kind(given)}, expected two: a method and a list of batches")
            return Subject(name, given[0], given[1])
        how = f"{name}(encoder, features={Pictures.num_features}, samples={SAMPLES})"
        method = called(
            f"{place} cannot be made by {how}",
            lambda: made(Pictures(), features=Pictures.num_features, samples=SAMPLES),
        )
    return Subject(name, method, [specimen_batch("", seed=seed) for seed in range(2)])


def _kind(given: object) -> str:
    return f"{len(given)} values" if isinstance(given, tuple | list) else f"a {type(given).__name__}"


def specimen(name: str) -> Method:
    """The method of that name on a small encoder; the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # MoCo draws dropout group by group: several processes draw another, equally good one.
        encoder: nn.Module = Pictures(0.0 if name in ("moco", "moco_v1") else 0.1)
        if name == "cpc":
            encoder = CPCEncoder(2, kernels=(3, 2), strides=(1, 2), width=6, context=8)
        elif name == "simcse":
            encoder = TextEncoder(_WORDS, _LENGTH, width=16, layers=1, heads=2, dropout=0.1)
        elif name in _TOWERS:
            encoder = TwoTowers(encoder, TextEncoder(_WORDS, _LENGTH, width=16, layers=1, heads=2, dropout=0.1), dim=8)
        features: int = encoder.num_features  # type: ignore[assignment]
        return METHODS[name](encoder, features=features, samples=SAMPLES, **OPTIONS.get(name, {}))


def specimen_batch(name: str, rows: int = 12, seed: int = 0) -> Batch:
    """A batch for that method, in float64: two samples share an id, sequences and texts differ in length."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randperm(SAMPLES, generator=generator)[:rows]
    ids = index.clone()
    ids[-1] = ids[0]
    if name == "cpc":
        x = torch.randn(rows, 2, 16, generator=generator, dtype=torch.float64)
        x[1, :, 9:] = torch.nan
        views = [x]
    elif name == "simcse":
        views = [_texts(rows, generator)]
    else:
        x = torch.randn(rows, 3, 6, 6, generator=generator, dtype=torch.float64)
        other = x + 0.5 * torch.randn(x.shape, generator=generator, dtype=torch.float64)
        views = [x, _texts(rows, generator) if name in _TOWERS else other]
    return Batch(views, index, ids, labels=torch.arange(rows) % 3)


def _texts(rows: int, generator: torch.Generator) -> Tensor:
    tokens = torch.randint(4, _WORDS, (rows, _LENGTH), generator=generator)
    ends = torch.randint(3, _LENGTH - 1, (rows, 1), generator=generator)
    return tokens.masked_fill(torch.arange(_LENGTH) >= ends, 0)
