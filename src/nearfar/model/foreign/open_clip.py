"""Checkpoints of open_clip: their architectures, their tokenizer, weights read without unpickling."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.messages import one_line
from nearfar.modalities.image.huggingface import three
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.foreign.towers import ForeignModel, check_finite
from nearfar.weights.files import read_tensors
from nearfar.weights.huggingface import quiet_hub
from nearfar.weights.layouts import listed

CONFIG = "open_clip_config.json"
WEIGHTS = (  # names in a folder, the first that is there is taken
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "model.safetensors",
    "open_clip_pytorch_model.bin",
)
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size")  # numbers that OpenAI's files hold, too
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def open_open_clip(what: str, *, untrained: bool = False) -> ForeignModel:
    """The model that "NAME=FILE", "NAME", "NAME/TAG" or "FOLDER" stands for."""
    name, equals, given = what.partition("=")
    folder = Path(what).expanduser()
    if folder.is_dir():
        name, file = f"local-dir:{folder}", _weights_in(folder)
    elif equals and given:
        file = Path(given).expanduser()
    else:
        name, _, tag = what.partition("/")
        file = Path() if untrained else _published(name, tag)
    state = None if untrained else read_weights(file)
    open_clip: Any = _open_clip()
    with _quiet():
        try:
            network = open_clip.create_model(name, load_weights=False, pretrained_image=False, pretrained_text=False)
            tokenizer = open_clip.get_tokenizer(name)
        except Exception as error:  # unknown names and broken settings, each in its own way
            reason = one_line(error).partition(" Available:")[0]
            raise ValueError(
                f"open_clip cannot make {name!r} ({reason}); open_clip.list_models() lists the names it knows"
            ) from None
    if state is not None:
        _load(network, state, file, name)
        check_finite(network, file)
    said = open_clip.get_model_preprocess_cfg(network)
    size = said.get("size", 224)
    return ForeignModel(
        name=f"open_clip:{folder.resolve().name if folder.is_dir() else name}",
        network=network.float().eval(),
        see=lambda network, x: network.encode_image(x),
        tokenize=tokenizer,
        read=lambda network, tokens: network.encode_text(tokens),
        logit_scale=float(network.logit_scale.detach().exp()),
        preparation=Preparation(
            int(size if isinstance(size, int) else size[0]),
            three(said.get("mean"), MEAN),
            three(said.get("std"), STD),
        ),
    )


def _published(name: str, tag: str) -> Path:
    """The file of a model's published weights, by the first tag if none is given; from the cache, or the hub."""
    open_clip = _open_clip()
    tags = open_clip.list_pretrained_tags_by_model(name)
    if not tags or (tag and tag not in tags):
        known = f"its tags are {listed(tuple(tags))}" if tags else "open_clip.list_pretrained() lists those that are"
        raise ValueError(f"open_clip has published no {'/'.join(filter(None, (name, tag)))!r}; {known}")
    try:
        with quiet_hub():
            found = open_clip.download_pretrained(open_clip.get_pretrained_cfg(name, tag or tags[0]))
    except Exception as error:  # no network, a broken cache: each in its own way
        raise ValueError(
            f"the weights of open_clip:{name} could not be fetched ({one_line(error, 100)}); give a file: "
            f"open_clip:{name}=FILE"
        ) from None
    return Path(found)


def read_weights(file: Path) -> dict[str, Tensor]:
    """Tensors by name from safetensors or a torch file, of which nothing is run; of a training checkpoint its model."""
    tensors = read_tensors(file)
    if not tensors:
        raise ValueError(f"{file} is not a file of weights: expected tensors by name, saw none")
    root = next((key for key in tensors if key.endswith("logit_scale")), "logit_scale").removesuffix("logit_scale")
    return {key.removeprefix(root): x for key, x in tensors.items() if key.startswith(root)}


def _load(network: nn.Module, state: dict[str, Tensor], file: Path, name: str) -> None:
    from open_clip.convert import convert_state_dict
    from open_clip.model import convert_to_custom_text_state_dict

    state = convert_state_dict(network, state)
    if "positional_embedding" in state and not hasattr(network, "positional_embedding"):
        state = convert_to_custom_text_state_dict(state)
    own = network.state_dict()
    for key in ("logit_scale", "logit_bias"):  # some files hold one number as a row of one
        if key in own and key in state and state[key].numel() == own[key].numel():
            state[key] = state[key].reshape(own[key].shape)
    state = {key: x for key, x in state.items() if not key.endswith("position_ids") and key not in _NOT_WEIGHTS}
    for problem, keys in (
        ("lacks", {key for key in own.keys() - state.keys() if not key.endswith("position_ids")}),
        ("has too much:", state.keys() - own.keys()),
        ("has another shape of", {k for k in own.keys() & state.keys() if own[k].shape != state[k].shape}),
    ):
        if keys:
            first, more = min(keys)[:80], f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ValueError(
                f"{file} does not fit {name!r}: it {problem} {first!r}{more}; is it a different architecture?"
            )
    network.load_state_dict(state, strict=False)


def _weights_in(folder: Path) -> Path:
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no {CONFIG}, expected a folder as open_clip writes for the hub")
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    return folder / WEIGHTS[0]


def _open_clip() -> Any:
    from nearfar import _torchvision  # noqa: F401, before open_clip

    try:
        import open_clip  # isort: skip
    except ImportError:
        raise ImportError("open_clip:… needs open_clip_torch: pip install 'nearfar[clip]'") from None
    return open_clip


@contextmanager
def _quiet() -> Iterator[None]:
    """open_clip warns of random weights, which are about to be read; what is drawn for them leaves no trace."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        logging.disable(before)
