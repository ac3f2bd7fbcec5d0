"""Start weights of text encoders by name: the encoder they are of, its tokenizer and its pooling."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from nearfar.modalities.text.config import TextConfig
from nearfar.weights.files import read_tensors
from nearfar.weights.huggingface import PACKAGE, TRANSFORMERS, model_kind, modules_of, settings_file
from nearfar.weights.load import fill, stated_card, weights_file
from nearfar.weights.names import WeightsName, parse_name

_OF_RUN = ("vocab_size", "max_length", "pooling", "causal", "quick_gelu", "head", "normalize")  # settings to keep
_POOLINGS = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}  # of sentence-transformers, and ours
_BY_ROW = ("token_embedding.weight", "positions")  # of our encoders: a row for each token, for each position
LONGEST = 512  # tokens, if a model does not say


def model_source(start: WeightsName) -> str | None:
    """The folder, hub name or package of a model of `transformers`; None for other weights."""
    if start.kind == "hf":
        return start.name
    return f"{PACKAGE}{start.name}" if start.kind == "package" and weights_file(start) is None else None


def start_settings(start: WeightsName) -> dict[str, Any]:
    """Settings of `TextConfig` that go with weights: encoder, tokenizer, and how features are pooled."""
    if (source := model_source(start)) is not None:
        tower = model_kind(source) == "image-text"
        pooling = "last" if tower else stated_pooling(source)
        longest = stated_length(source)
        short = {"max_length": longest} if longest < TextConfig.max_length else {}
        return {"encoder": TRANSFORMERS + source, "tokenizer": source, "pooling": pooling, **short}
    if start.kind in ("file", "folder"):
        return _run_settings(Path(start.name)) if start.kind == "folder" else {}
    raise ValueError(
        f"the weights {start} are not of a text encoder; expected a run, hf:NAME, package:minilm, or a file"
    )


def stated_pooling(source: str) -> str:
    """The pooling in 1_Pooling/config.json, as sentence-transformers writes it; else the mean."""
    said = settings_file(source, "1_Pooling/config.json")
    if said is None:
        return "mean"
    stated = str(said.get("pooling_mode", "")) or None
    modes = [stated] if stated else [key.removeprefix("pooling_mode_") for key, value in said.items() if value is True]
    modes = [mode for mode in modes if mode != "include_prompt"]
    found = [_POOLINGS.get(mode, mode if mode in ("cls", "mean") else "") for mode in modes]
    if len(found) != 1 or not found[0]:
        raise ValueError(f"{source}: its pooling is {' and '.join(modes) or 'none'}, expected one of mean, cls or last")
    return found[0]


def states_normalization(source: str) -> bool:
    """Whether the model's features are scaled to length 1, as its modules.json says."""
    return any(str(row.get("type", "")).endswith("Normalize") for row in modules_of(source))


def unread_modules(source: str) -> list[str]:
    """Layers of a modules.json that are not in `transformers`' model, such as a Dense layer after the pooling."""
    known = ("Transformer", "Pooling", "Normalize")
    return [str(row.get("path")) for row in modules_of(source) if not str(row.get("type", "")).endswith(known)]


def stated_length(source: str) -> int:
    """Tokens of a text at most, as the model was published with."""
    said = (settings_file(source, "sentence_bert_config.json") or {}).get("max_seq_length")
    config = settings_file(source, "config.json") or {}
    positions = config.get("text_config", config).get("max_position_embeddings")
    padding = config.get("pad_token_id")
    shift = padding + 1 if isinstance(padding, int) and 0 < padding < 10 else 0  # RoBERTa's positions begin there
    longest = positions - shift if isinstance(positions, int) and positions > 0 else LONGEST
    return min(said, longest) if isinstance(said, int) and said > 0 else min(longest, LONGEST)


def _run_settings(folder: Path) -> dict[str, Any]:
    """As the run had them; its tokenizer lies beside its weights."""
    card = stated_card(folder)
    try:
        text = card["config"]["text"]
        kept = {key: text[key] for key in _OF_RUN if key in text}
        encoder = card["config"]["backbone"] if card.get("modality") == "text" else text["encoder"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder} is not a run on texts: its card has no {error}") from None
    return {**kept, "encoder": encoder, "tokenizer": str(folder)}


def begin(network: nn.Module, start: WeightsName, name: str) -> None:
    """Fill a text encoder from a run or a file; `network.loaded` then says what was found.

    Rows of tokens that the tokenizer does not have, and of positions that texts do not reach, are left out.
    """
    file = weights_file(start)
    if file is None:
        raise ValueError(f"the weights {start} are not of the text encoder {name!r}; expected a run or a file")
    own = network.state_dict()
    cut = {key: len(own[key]) for key in _BY_ROW if key in own}
    tensors = {
        key: next((x[:rows] for end, rows in cut.items() if key.endswith(end)), x)
        for key, x in read_tensors(file).items()
    }
    fit = fill(network, tensors, name, str(file))
    setattr(network, "loaded", f"{file}: {fit.summary()}")  # noqa: B010, which torch's annotation refuses


def with_start(text: Mapping[str, Any], weights: str) -> dict[str, Any]:
    """The settings of texts with those that go with the weights, below what was asked for."""
    start = parse_name(weights).absolute()
    found = start_settings(start)
    asked = with_absolute_folder(str(text.get("encoder") or ""))
    if asked and found.get("encoder", asked) != asked:
        raise ValueError(f"the weights {start} are of {found['encoder']!r}, not of {asked!r}; leave the encoder out")
    return {**found, **text, "weights": str(start)}


def with_absolute_folder(name: str) -> str:
    """transformers:FOLDER with the folder in full, so that it is found from elsewhere, too."""
    source = Path(name.removeprefix(TRANSFORMERS)).expanduser()
    return TRANSFORMERS + str(source.absolute()) if name.startswith(TRANSFORMERS) and source.is_dir() else name
