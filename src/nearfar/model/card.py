"""The card beside the weights: what the encoder is, how to feed it, where it comes from and how good it was."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import nearfar
from nearfar.config import TrainConfig
from nearfar.messages import shown
from nearfar.modalities import MODALITIES, modality_class
from nearfar.nn.whitening import KINDS, TransformKind
from nearfar.safe_read import read_json
from nearfar.settings import build

FORMAT = "nearfar encoder"
VERSION = 2  # of the card's keys, the configuration's among them; raised when older cards can no longer be read
LARGEST_FILE = 16 << 20  # bytes of a card

_METRIC = ("protocol", "metric", "value", "low", "high", "data", "split", "n")  # of a row of evaluation.json
Card = dict[str, Any]


def make_card(
    config: TrainConfig,
    feeding: Mapping[str, Any],
    *,
    temperature: float | None = None,
    embedding: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    licence: str | None = None,
    adaptation: Mapping[str, Any] | None = None,
) -> Card:
    """The card of a run.

    Args:
        config: of the run.
        feeding: `Modality.card()`: how to feed the encoder.
        temperature: at the end of training, of methods that have one.
        embedding: how the features were transformed (`EmbeddingChoice`); None: not at all.
        data: what is known of the training data, such as its fingerprint.
        licence: of the weights, an SPDX name such as "Apache-2.0"; for their owner to state.
        adaptation: of a run from given weights, which weights it kept, and why.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "nearfar": nearfar.__version__,
        "backbone": config.backbone,
        "pretrained": config.pretrained,
        **feeding,
        "method": config.method,
        "temperature": temperature,
        "embedding": dict(embedding or {"kind": "plain"}),
        "data": {"name": config.data.path, **(data or {})},
        **({} if adaptation is None else {"adaptation": dict(adaptation)}),
        "metrics": [],
        "licence": licence,
        "config": asdict(config),
    }


def read_card(path: Path) -> Card:
    """The card in a file, with everything checked that loading depends on."""
    try:
        card = read_json(path, LARGEST_FILE)
    except ValueError as error:
        raise ValueError(f"{path} is not a card ({' '.join(str(error).split())}); export the run again") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise ValueError(f"{path} is not the card of an encoder, expected an object with format {FORMAT!r}")
    if (found := card.get("version", 1)) != VERSION:
        raise ValueError(
            f"{path} has card version {shown(found)}, written by nearfar {shown(card.get('nearfar'))}, and this is "
            f"{nearfar.__version__} with version {VERSION}; load it with that version, or train again"
        )
    name, kind = card.get("backbone"), card.get("modality", "image")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{path}: backbone is {shown(name)}, expected a name")
    if not isinstance(kind, str) or (kind not in MODALITIES and ":" not in kind):
        raise ValueError(f"{path}: modality is {shown(kind)}, expected one of {', '.join(MODALITIES)}")
    if kind != "image" and not isinstance(card.get("config"), dict):
        raise ValueError(f"{path}: config is {shown(card.get('config'))}, expected keys and values")
    if transform_of(card) not in KINDS:
        raise ValueError(f"{path}: embedding is {shown(card['embedding'])}, expected a kind of {', '.join(KINDS)}")
    modality_class(kind).check_card(card, path)
    return card


def transform_of(card: Card) -> TransformKind:
    """The kind of the embeddings; "plain" of cards that do not say."""
    stated: Any = card.get("embedding")
    if stated is None:
        return "plain"
    found: TransformKind = stated["kind"] if isinstance(stated, dict) and "kind" in stated else stated
    return found


def config_of(card: Card, where: str) -> TrainConfig:
    """The configuration that a card states; of an image encoder without one, what its network needs."""
    kind = card.get("modality", "image")
    if not isinstance(card.get("config"), dict):
        given: dict[str, Any] = {"backbone": card["backbone"], "image_size": card["image_size"], "modality": kind}
        return TrainConfig(**given)
    config: TrainConfig = build(TrainConfig, card["config"], where)
    if kind == "image":
        size, published = card["image_size"], card.get("pretrained") is True
        config = replace(config, backbone=card["backbone"], image_size=size, pretrained=published)
    return replace(config, modality=kind)


def foreign_card(config: TrainConfig, feeding: Mapping[str, Any], origin: str, licence: str | None = None) -> Card:
    """The card of an encoder that comes without a run.

    Args:
        origin: its name, as `nearfar.load` takes it.
    """
    return {**make_card(config, feeding, licence=licence), "method": None, "data": {"name": None}, "origin": origin}


def is_of_run(card: Card) -> bool:
    """Whether a run trained the encoder; else it is of another library, or has no configuration."""
    return "config" in card and card.get("method") is not None


def start_of(config: TrainConfig) -> str | None:
    """What a run began with, if not with weights that it drew."""
    given = config.weights or config.text.weights
    return given or ("published weights" if config.pretrained else None)


def with_metrics(card: Card, evaluation: Path) -> Card:
    """The card with the rows of an `evaluation.json`: the trained encoder's, and what it was compared with; unchanged
    if there is none."""
    if not evaluation.is_file():
        return card
    try:
        rows = read_json(evaluation)["results"]
        measured = [_measured(row) for row in rows if row["encoder"] == "trained"]
        others = [{"encoder": str(row["encoder"]), **_measured(row)} for row in rows if row["encoder"] != "trained"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{evaluation} does not hold evaluation results ({error!r}); evaluate again") from None
    return {**card, "metrics": measured, "baselines": others}


def _measured(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row.get(key) for key in _METRIC} | ({"style": row["style"]} if "style" in row else {})
