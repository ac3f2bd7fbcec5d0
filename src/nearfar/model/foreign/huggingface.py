"""CLIP and SigLIP folders of Hugging Face's, by `transformers`: JSON and safetensors, nothing that runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.foreign.towers import ForeignModel, check_finite, one_line, three

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)
CLASSES = {"clip": "CLIPModel", "siglip": "SiglipModel"}  # by model_type
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
LARGEST_FILE = 1 << 20  # bytes of a file of settings


_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model")


def open_huggingface(where: str, *, untrained: bool = False) -> ForeignModel:
    """The model in a folder with config.json, model.safetensors and the tokenizer's files."""
    folder = Path(where).expanduser()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} holds no config.json, expected a folder as Hugging Face's save_pretrained writes"
        )
    kind = _settings(folder / "config.json").get("model_type")
    if kind not in CLASSES:
        raise ValueError(f"{folder}: model_type is {kind!r}, expected one of {', '.join(CLASSES)}")
    if not untrained and not any((folder / name).is_file() for name in WEIGHTS):
        raise FileNotFoundError(
            f"{folder} holds no {WEIGHTS[0]}: other files of weights may run code and are not read; save the model "
            "again with save_pretrained"
        )
    transformers = _transformers()
    with _quiet(transformers):
        network = _network(transformers, folder, kind, untrained)
        tokenizer = _tokenizer(transformers, folder)
    size, longest = network.config.vision_config.image_size, network.config.text_config.max_position_embeddings

    def tokenize(texts: list[str]) -> Tensor:
        fill = "max_length" if kind == "siglip" else True  # SigLIP has learned to read the padding
        tokens = tokenizer(texts, padding=fill, truncation=True, max_length=longest, return_tensors="pt")
        wanted = ("input_ids",) if kind == "siglip" else ("input_ids", "attention_mask")
        return torch.stack([tokens[name] for name in wanted], 1)  # (B, 1 or 2, L)

    def read(network: Any, tokens: Tensor) -> Tensor:
        names = ("input_ids", "attention_mask")[: tokens.shape[1]]
        return _features(network.get_text_features(**dict(zip(names, tokens.unbind(1), strict=True))))

    return ForeignModel(
        name=f"hf:{folder.resolve().name}",
        network=network,
        see=lambda network, x: _features(network.get_image_features(pixel_values=x)),
        tokenize=tokenize,
        read=read,
        logit_scale=float(network.logit_scale.detach().exp()),
        preparation=_preparation(folder, size, kind),
    )


def _network(transformers: Any, folder: Path, kind: str, untrained: bool) -> Any:
    model = getattr(transformers, CLASSES[kind])
    try:
        if untrained:
            return model(model.config_class.from_pretrained(folder, local_files_only=True))
        network, found = model.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # a broken file of any kind, each with an error of its own
        raise ValueError(f"{folder} cannot be read as a {CLASSES[kind]}: {one_line(error)}") from None
    if lacking := sorted(found["missing_keys"]):  # they would be drawn at random
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ValueError(f"{folder}: the weights lack {lacking[0]!r}{more}; get the model again")
    check_finite(network, folder)
    return network.float()


def _tokenizer(transformers: Any, folder: Path) -> Any:
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ValueError(f"{folder} has no tokenizer, expected {' or '.join(_TOKENIZERS)} beside the weights")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ValueError(
            f"{folder}: its tokenizer cannot be read, expected tokenizer.json beside the weights: {one_line(error)}"
        ) from None
    if tokenizer.pad_token is None:
        raise ValueError(f"{folder}: its tokenizer has no pad_token, which texts of several lengths need")
    return tokenizer


def _preparation(folder: Path, size: int, kind: str) -> Preparation:
    """As preprocessor_config.json has it, or as the papers do."""
    said: dict[str, Any] = {}
    for name in ("processor_config.json", "preprocessor_config.json"):
        if (folder / name).is_file():
            found = _settings(folder / name)
            said |= found.get("image_processor", found)
    if said.get("do_normalize") is False:
        return Preparation(size, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    mean, std = (CLIP_MEAN, CLIP_STD) if kind == "clip" else (HALF, HALF)
    return Preparation(size, three(said.get("image_mean"), mean), three(said.get("image_std"), std))


def _settings(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"it has {path.stat().st_size:,} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no file of settings ({one_line(error)}), expected a JSON object") from None
    return content


def _features(found: Any) -> Tensor:
    """(B, D): transformers gives it as it is up to version 4, within an output from 5 on."""
    z: Tensor = found if isinstance(found, Tensor) else found.pooler_output
    return z


def _transformers() -> Any:
    from nearfar import _torchvision  # noqa: F401, before transformers

    try:
        import transformers  # isort: skip
    except ImportError:
        raise ImportError("hf:FOLDER needs transformers: pip install 'nearfar[text]'") from None
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No bars and no warnings of the library: what matters is checked here, and said in a line."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):  # weights that are drawn before they are read leave no trace
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
