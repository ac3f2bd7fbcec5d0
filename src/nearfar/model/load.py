"""Encoders by name: a run or export, a model of another library, weights in a file or a package, an ONNX file."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nearfar.data.downloads import no_downloads
from nearfar.devices import find_device
from nearfar.messages import one_line
from nearfar.modalities import modality_class
from nearfar.modalities.base import Modality
from nearfar.model.card import Card, config_of, read_card, start_of, transform_of
from nearfar.model.encoder import Encoder
from nearfar.model.export import how_to_open
from nearfar.model.save import CARD, MODEL, TRANSFORM
from nearfar.model.stopped import has_model, is_stopped, open_stopped, stated_card, stopped_note
from nearfar.nn.whitening import EmbeddingTransform
from nearfar.plugins import named_by
from nearfar.progress import print_note
from nearfar.python_objects import MissingObjectError, register_as
from nearfar.weights.allocation_limit import limit_for
from nearfar.weights.hub import download
from nearfar.weights.huggingface import model_kind
from nearfar.weights.names import WeightsName, parse_name
from nearfar.weights.packages import find_package


def load(
    spec: str | Path,
    *,
    device: torch.device | str = "cpu",
    image_size: int | None = None,
    dim: int | None = None,
    untrained: bool = False,
    encoder: nn.Module | None = None,
) -> Encoder:
    """The encoder that a text names, in evaluation mode; nothing is unpickled.

    Args:
        spec: the folder of a run or of an export (of a run that was stopped, its newest checkpoint is opened, and a
            line says so); "user/name", an export on the Hugging Face hub; "timm:NAME" or "torchvision:NAME" with their
            published weights, which need a network once, or "timm:NAME=FILE" with those of a file; "hf:FOLDER" or
            "hf:NAME", a model of images, texts, waves, or of images and texts; "open_clip:NAME", "open_clip:NAME=FILE"
            or "open_clip:FOLDER"; "package:NAME", weights that are installed (`nearfar.weights.PACKAGES`); a file of an
            image encoder's weights in any usual layout; or a path that ends in .onnx.
        device: where it computes, such as "cpu", "cuda:1" or "auto"; ONNX is on the CPU.
        image_size: pixels of the input, if they can be chosen; a run has its own.
        dim: numbers of an embedding to keep, the first; for runs with nested ones (`--options.dims`). None: all.
        untrained: the same network before it learned anything: of a run, as it began (with the weights that it was
            given, or freshly drawn); of others, freshly drawn.
        encoder: the network, of a run that was trained with one of your own (`nearfar.train(..., encoder=...)`), which
            no file describes; its weights are those of the run.
    """
    if encoder is not None:
        register_as(str(stated_card(Path(spec).expanduser())["backbone"]), encoder)
    found = _load(spec, device, image_size, untrained)
    return found if dim is None else found.first(dim)


def _load(spec: str | Path, device: torch.device | str, image_size: int | None, untrained: bool) -> Encoder:
    device = find_device(device) if isinstance(device, str) else device
    if str(spec).endswith(".onnx"):
        from nearfar.model.foreign.onnx import open_onnx

        if untrained:
            raise ValueError(f"{spec} has no untrained version: an ONNX file holds trained weights only")
        return open_onnx(Path(spec), size=image_size)
    name = parse_name(spec, hub=True)
    if name.kind == "hub":
        name = WeightsName("folder", str(download(name.name)))
    if name.kind == "file" and (way := how_to_open(Path(name.name))) is not None:
        raise ValueError(f"{spec} is a whole graph, not weights; {way}")
    if name.kind == "folder":
        folder = Path(name.name)
        with no_downloads(), named_by(folder):  # it may be anyone's: what it names is looked for on this machine
            return (_start_of(folder) if untrained else _from_folder(folder)).to(device).eval()
    if untrained:
        torch.manual_seed(0)
    return _open_foreign(name, image_size, untrained=untrained).to(device).eval()


def _open_foreign(name: WeightsName, size: int | None, *, untrained: bool) -> Encoder:
    """A model of another library, a package or a file."""
    from nearfar.model.foreign import encoders, towers

    if name.kind == "open_clip":
        return towers.open_towers(str(name), untrained=untrained)
    if name.kind not in ("hf", "package") or (name.kind == "package" and find_package(name.name).modality == "image"):
        return encoders.open_images(name, size, untrained=untrained)
    source = str(name) if name.kind == "package" else name.name
    kind = model_kind(source)
    if kind == "image-text":
        return towers.open_towers(str(name), untrained=untrained)
    if kind == "image":
        return encoders.open_images(name, size, untrained=untrained)
    open_other = encoders.open_texts if kind == "text" else encoders.open_sounds
    return open_other(source, str(name), untrained=untrained)


def _from_folder(folder: Path) -> Encoder:
    where = folder / MODEL
    if is_stopped(folder):
        card, weights, step = open_stopped(folder)
        print_note(stopped_note(folder, step))
        where = folder / "checkpoints"
    elif not has_model(folder):
        raise FileNotFoundError(f"{folder} holds no {MODEL} and {CARD}, expected the folder of a run or of an export")
    else:
        card, weights = read_card(folder / CARD), _read_weights(where)
    modality = modality_of(card, folder)
    try:
        with limit_for(weights):
            network = modality.trained_encoder(untrained=True)
    except MissingObjectError:
        raise
    except ValueError as error:
        raise ValueError(f"{where} does not fit {folder / CARD}: {one_line(error)}; export it again") from None
    _check_fit(weights, network, where, card["backbone"])
    network.load_state_dict(weights)
    return Encoder(network, modality, card, transform=_read_transform(folder, card, network), folder=folder)


def _read_transform(folder: Path, card: Card, network: nn.Module) -> EmbeddingTransform | None:
    """What the card says is done to the network's features."""
    kind, path = transform_of(card), folder / TRANSFORM
    if kind == "plain":
        return None
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no {TRANSFORM}, and its embeddings are {kind}; copy that file, too")
    found = _read_weights(path)
    try:
        transform = EmbeddingTransform(kind, found["mean"], found.get("weight"))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a {kind} transform ({error}); copy or export it again") from None
    width = network.num_features
    if len(transform.mean) != width:
        raise ValueError(f"{path} is of {len(transform.mean)} features, expected {width}; copy or export it again")
    if not all(bool(x.isfinite().all()) for x in found.values()):
        raise ValueError(f"{path} has values that are not finite; train or export again")
    return transform


def _start_of(folder: Path) -> Encoder:
    """The encoder of a run as it was before its first step: with the weights that it began with, if there were any."""
    card = stated_card(folder)
    modality = modality_of(card, folder)
    start = start_of(modality.config)
    torch.manual_seed(modality.config.seed)
    network = modality.trained_encoder(untrained=start is None)
    return Encoder(network, modality, {**card, "start": start})


def modality_of(card: Card, folder: Path) -> Modality:
    """The modality that a card states, with what was learned for it."""
    return modality_class(card.get("modality", "image")).load(config_of(card, str(folder / CARD)), card, folder)


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is not a whole safetensors file ({reason}); copy or export it again") from None


def _check_fit(weights: Mapping[str, Tensor], network: nn.Module, path: Path, name: str) -> None:
    own = network.state_dict()
    for problem, keys in (
        ("lacks", own.keys() - weights.keys()),
        ("has too much:", weights.keys() - own.keys()),
        ("has another shape of", {k for k in own.keys() & weights.keys() if own[k].shape != weights[k].shape}),
    ):
        if keys:
            first, more = min(keys)[:80], f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ValueError(f"{path} does not fit backbone {name!r}: it {problem} {first!r}{more}; export it again")
    for key, x in weights.items():
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise ValueError(f"{path}: {key} has values that are not finite; train or export again")
