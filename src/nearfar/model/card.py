"""The card beside the weights: what the encoder is, how to feed it, where it comes from and how good it was."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nearfar
from nearfar.config import TrainConfig
from nearfar.modalities.image.views.prepare import Preparation

FORMAT = "nearfar encoder"
MODALITIES = ("image", "image-text", "series", "sound", "text")
LARGEST_SIDE = 4096  # of an input image; more is a mistake, or a file that wants all the memory
LARGEST_FILE = 16 << 20  # bytes of a card

Card = dict[str, Any]


def make_card(
    config: TrainConfig,
    feeding: Mapping[str, Any],
    *,
    temperature: float | None = None,
    data: Mapping[str, Any] | None = None,
    licence: str | None = None,
) -> Card:
    """The card of a run.

    Args:
        config: of the run.
        feeding: what the encoder's samples go through, as a preparation puts it on a card.
        temperature: at the end of training, of methods that have one.
        data: what is known of the training data, such as its fingerprint.
        licence: of the weights, an SPDX name such as "Apache-2.0"; for their owner to state.
    """
    return {
        "format": FORMAT,
        "nearfar": nearfar.__version__,
        "backbone": config.backbone,
        "pretrained": config.pretrained,
        **feeding,
        "method": config.method,
        "temperature": temperature,
        "data": {"name": config.data, **(data or {})},
        "metrics": [],
        "licence": licence,
        "config": asdict(config),
    }


def read_card(path: Path) -> Card:
    """The card in a file, with everything checked that loading depends on."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"it has {path.stat().st_size:,} bytes")
        card = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no card ({' '.join(str(error).split())}); export the run again") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise ValueError(f"{path} is not the card of an encoder, expected an object with format {FORMAT!r}")
    name, kind = card.get("backbone"), card.get("modality", "image")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{path}: backbone is {shown(name)}, expected a name")
    if kind not in MODALITIES:
        raise ValueError(f"{path}: modality is {shown(kind)}, expected one of {', '.join(MODALITIES)}")
    if kind != "image" and not isinstance(card.get("config"), dict):
        raise ValueError(f"{path}: config is {shown(card.get('config'))}, expected keys and values")
    if kind in ("image", "image-text"):
        check_preparation(card, path)
    if kind == "sound":
        check_loudness(card, path)
    return card


def check_loudness(card: Card, path: Path) -> None:
    """Whether what a card says of the mean and deviation of log-mels can be used."""
    mean, std = card.get("mean"), card.get("std")
    if not _finite(mean) or not _finite(std) or not isinstance(std, int | float) or std <= 0:
        raise ValueError(f"{path}: mean and std are {shown(mean)} and {shown(std)}, expected numbers, the last above 0")


def check_preparation(card: Card, path: Path) -> None:
    """Whether what a file says of the preparation can be used."""
    side = card.get("image_size")
    if not isinstance(side, int) or isinstance(side, bool) or not 1 <= side <= LARGEST_SIDE:
        raise ValueError(f"{path}: image_size is {shown(side)}, expected a whole number from 1 to {LARGEST_SIDE}")
    for key in ("mean", "std"):
        values = card.get(key)
        if not isinstance(values, list | tuple) or len(values) != 3 or not all(map(_finite, values)):
            raise ValueError(f"{path}: {key} is {shown(values)}, expected three numbers")
    for key in ("grayscale", "standardize"):
        if not isinstance(card.get(key, False), bool):
            raise ValueError(f"{path}: {key} is {shown(card[key])}, expected true or false")
    if min(card["std"]) <= 0:
        raise ValueError(f"{path}: std is {shown(card['std'])}, expected three numbers above 0")


def preparation(card: Card) -> Preparation:
    """What the images of a card's encoder go through."""
    return Preparation(
        card["image_size"],
        tuple(card["mean"]),
        tuple(card["std"]),
        grayscale=card.get("grayscale", False),
        standardize=card.get("standardize", False),
    )


def with_metrics(card: Card, evaluation: Path) -> Card:
    """The card with the trained encoder's rows of an `evaluation.json`; as it is where there is none."""
    if not evaluation.is_file():
        return card
    try:
        rows = json.loads(evaluation.read_text(encoding="utf-8"))["results"]
        measured = [
            {k: row.get(k) for k in ("protocol", "metric", "value", "low", "high", "data", "split", "n")}
            for row in rows
            if row["encoder"] == "trained"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{evaluation} does not hold evaluation results ({error!r}); evaluate again") from None
    return {**card, "metrics": measured}


def shown(value: object) -> str:
    """A value in an error, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
