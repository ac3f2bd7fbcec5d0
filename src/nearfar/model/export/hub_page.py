"""The page of a model on the hub: what it is, how good it is beside its baselines, and how to use it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.metric_text import MetricStyle, metric_text
from nearfar.model.card import Card, transform_of

HERE = "this/folder"  # in the code of a page whose place is not known
_TASKS = {"text": "sentence-similarity", "image": "image-feature-extraction", "sound": "audio-feature-extraction"}
_USES = {
    "text": 'encode(["a sentence", "another"])',
    "image": 'encode(["a.jpg", "b.jpg"])',
    "sound": 'encode(["a.wav", "b.wav"])',
    "series": "encode(series)",
    "table": "encode(rows)",
    "image-text": 'encode(["a.jpg", "b.jpg"])',
}
_NOUNS = {"text": "A text", "image": "An image", "sound": "A sound", "series": "A time series", "table": "A row"}
_BEFORE_PATH = r"(?:^|(?<=[\s:=,;('\"]))"  # a prefix such as "timm:NAME=", or the beginning of a word
_ABSOLUTE = re.compile(_BEFORE_PATH + r"(?:~|[A-Za-z]:\\|/(?!/))[^\s'\"]*[/\\]([^/\\\s'\":;,]+)")


def readme(card: Card, *, alone: str | None = None, name: str = HERE) -> str:
    """The page, with what the hub reads in its head.

    Args:
        card: a `public_card`.
        alone: a line that says that only nearfar opens it; None: what others open it, too.
        name: of the model on the hub.
    """
    kind = str(card.get("modality", "image"))
    head = ["---", "library_name: nearfar", "tags:", "- contrastive-learning", "- feature-extraction"]
    if (task := _TASKS.get(kind)) is not None:
        head[-1] = f"- {task}"
    if card.get("licence"):
        head.append(f"license: {json.dumps(str(card['licence']).lower())}")
    preparation = str(card.get("preprocessing", ""))
    fed = (
        f"{card['image_size']} × {card['image_size']}"
        if "image_size" in card
        else "sentences"
        if kind == "text"
        else ""
    )
    temperature = "" if card.get("temperature") is None else f", temperature {card['temperature']:g}"
    given = "; ".join(part for part in (fed, preparation) if part)
    method = "" if card.get("method") is None else f" by {card['method']}"
    return "\n".join(
        [
            *head,
            "---",
            "",
            f"{_NOUNS.get(kind, 'An')} encoder trained with nearfar{method}{temperature}."
            + (f" Input: {given}." if given else ""),
            "",
            *([f"**{card['verdict']}**", ""] if card.get("verdict") else []),
            "```python",
            "import nearfar",
            "",
            f"encoder = nearfar.load({json.dumps(name)})",
            f"features = encoder.{_USES.get(kind, 'encode(items)')}  # (N, {_width(card)})",
            "```",
            "",
            *_opened_by(kind == "text", alone, name),
            *_about_transform(card),
            *_results(card),
            "",
        ]
    )


def _width(card: Card) -> str:
    return str(card["num_features"]) if isinstance(card.get("num_features"), int) else "F"


def _results(card: Card) -> list[str]:
    """The trained encoder's numbers, each beside those of the others."""
    rows = [m for m in card.get("metrics", []) if isinstance(m.get("value"), int | float)]
    if not rows:
        return ["Not evaluated."]
    others = {
        (row["encoder"], *_measure(row)): row
        for row in card.get("baselines", [])
        if isinstance(row.get("value"), int | float)
    }
    names = list(dict.fromkeys(name for name, *_ in others))
    titles = ["protocol", "metric", "trained", *(_cell(name) for name in names), "data", "n"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for row in rows:
        found = [others.get((name, *_measure(row))) for name in names]
        values = [_value(row), *("" if other is None else _value(other) for other in found)]
        cells = [row["protocol"], row["metric"], *values, f"{row['data']} {row['split']}", row["n"]]
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    if names:
        lines += ["", "`untrained` is the same network before training; the others are simple rivals on the same data."]
    return lines


def _measure(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in ("protocol", "metric", "data", "split", "n"))


def _cell(content: object) -> str:
    return str(content).replace("|", "\\|")


def _value(metric: Mapping[str, Any]) -> str:
    return metric_text(metric["value"], _decimals(metric))


def _decimals(metric: Mapping[str, Any]) -> int | None:
    """Of a metric on a card that is no share; older cards do not say which are, but no share is above 1."""
    try:
        return MetricStyle.read(metric["style"]).decimals
    except (KeyError, ValueError):
        return None if -1 <= metric["value"] <= 1 else 2


def _opened_by(texts: bool, alone: str | None, name: str) -> list[str]:
    """How other libraries open the folder."""
    if alone is not None:
        return [f"{alone[0].upper()}{alone[1:]}.", ""]
    if not texts:
        place = f"local-dir:{name}" if name == HERE else f"hf-hub:{name}"
        return [f'`timm.create_model("{place}", pretrained=True, num_classes=0)` opens it, too.', ""]
    code = ["from sentence_transformers import SentenceTransformer", "", f'model = SentenceTransformer("{name}")']
    use = 'features = model.encode(["a sentence", "another"])  # the same'
    return ["```python", *code, use, "```", ""]


def _about_transform(card: Card) -> list[str]:
    kind = transform_of(card)
    if kind == "plain":
        return []
    others = (
        "sentence-transformers gives these, too; AutoModel" if card.get("modality") == "text" else "Other libraries"
    )
    return [f"Its embeddings are {kind}. {others} and `encode(..., raw=True)` give the network's features.", ""]


def public_card(card: Card) -> Card:
    """The card without paths of the machine that trained: of each, the last part stays."""
    config = card.get("config")
    data = config.get("data") if isinstance(config, Mapping) else None
    own = [each for each in (data or {}).values() if isinstance(each, str) and re.search(r"[/\\]", each)]
    own.append(str(Path.home()))
    own.sort(key=len, reverse=True)

    def cleaned(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: cleaned(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [cleaned(each) for each in value]
        if not isinstance(value, str):
            return value
        if Path(value).is_absolute() and "\n" not in value:
            return Path(value).name
        for path in own:
            value = value.replace(path, Path(path).name)
        return _ABSOLUTE.sub(r"\1", value)

    found: Card = cleaned(card)
    return found
