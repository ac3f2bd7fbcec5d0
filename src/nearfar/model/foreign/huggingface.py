"""CLIP-like models of `transformers`: JSON and safetensors, nothing that runs."""

from typing import Any

import torch
from torch import Tensor

from nearfar.messages import one_line
from nearfar.modalities.image.huggingface import published_scale
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.foreign.towers import ForeignModel
from nearfar.weights.huggingface import (
    import_transformers,
    local_place,
    model_kind,
    open_model,
    quiet,
    read_settings,
    settings_file,
)

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_FILLED = ("siglip", "siglip2")  # which have learned to read the padding
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model")


def open_huggingface(where: str, *, untrained: bool = False) -> ForeignModel:
    """The model in a folder with config.json, model.safetensors and the tokenizer's files."""
    folder = local_place(where)
    if folder.is_dir():
        read_settings(folder / "config.json")
        if not untrained and not any((folder / name).is_file() for name in WEIGHTS):
            raise FileNotFoundError(
                f"{folder} holds no {WEIGHTS[0]}: other files of weights may run code and are not read; save the model "
                "again with save_pretrained"
            )
    transformers = import_transformers(f"hf:{where}")
    if model_kind(where) != "image-text":
        stated = (settings_file(where, "config.json") or {}).get("model_type")
        raise ValueError(f"{where}: model_type is {stated!r}, expected images and texts, such as clip or siglip")
    network: Any = open_model(where, pretrained=not untrained)
    kind = network.config.model_type
    with quiet(transformers):
        tokenizer = _tokenizer(transformers, where)
    size, longest = network.config.vision_config.image_size, network.config.text_config.max_position_embeddings

    def tokenize(texts: list[str]) -> Tensor:
        fill = "max_length" if kind in _FILLED else True
        tokens = tokenizer(texts, padding=fill, truncation=True, max_length=longest, return_tensors="pt")
        wanted = ("input_ids",) if kind in _FILLED else ("input_ids", "attention_mask")
        return torch.stack([tokens[name] for name in wanted], 1)  # (B, 1 or 2, L)

    def read(network: Any, tokens: Tensor) -> Tensor:
        names = ("input_ids", "attention_mask")[: tokens.shape[1]]
        return _features(network.get_text_features(**dict(zip(names, tokens.unbind(1), strict=True))))

    return ForeignModel(
        name=f"hf:{folder.resolve().name if folder.is_dir() else where}",
        network=network,
        see=lambda network, x: _features(network.get_image_features(pixel_values=x)),
        tokenize=tokenize,
        read=read,
        logit_scale=float(network.logit_scale.detach().exp()),
        preparation=Preparation(size, *published_scale(where, kind)),
    )


def _tokenizer(transformers: Any, where: str) -> Any:
    folder = local_place(where)
    local = folder.is_dir()
    if local and not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ValueError(f"{folder} has no tokenizer, expected {' or '.join(_TOKENIZERS)} beside the weights")
    place = str(folder) if local else where
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=local, trust_remote_code=False)
    except Exception as error:
        raise ValueError(
            f"{where}: its tokenizer cannot be read, expected tokenizer.json beside the weights: {one_line(error)}"
        ) from None
    if tokenizer.pad_token is None:
        raise ValueError(f"{where}: its tokenizer has no pad_token, which texts of several lengths need")
    return tokenizer


def _features(found: Any) -> Tensor:
    """(B, D): transformers gives it as it is up to version 4, within an output from 5 on."""
    z: Tensor = found if isinstance(found, Tensor) else found.pooler_output
    return z
