"""Weights of a name or file into a network that is there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from nearfar.messages import shorten
from nearfar.safe_read import read_json
from nearfar.weights.files import read_tensors
from nearfar.weights.layouts import LayoutFit, MisfitError, fit_layout
from nearfar.weights.names import WeightsName, parse_name
from nearfar.weights.packages import find_package, package_path

MODEL, CARD = "model.safetensors", "card.json"  # of a run or an export


def weights_file(name: WeightsName) -> Path | None:
    """The file that a name stands for; None where a library has to be asked."""
    if name.file is not None:
        return name.file
    if name.kind == "file":
        return Path(name.name)
    if name.kind == "folder":
        file = Path(name.name) / MODEL
        if not file.is_file():
            raise FileNotFoundError(f"{name.name} holds no {MODEL}, expected the folder of a finished run or an export")
        return file
    if name.kind == "package" and find_package(name.name).backbone is not None:
        return package_path(name.name)
    return None


def stated_card(folder: Path) -> dict[str, Any]:
    """What a run or an export states of its network, unchecked: for settings that go with its weights."""
    try:
        card = read_json(folder / CARD)
    except (OSError, ValueError, RecursionError) as error:
        fault = f"{folder} has no {CARD} that can be read ({type(error).__name__})"
        raise ValueError(f"{fault}; expected the folder of a finished run or an export") from None
    return card if isinstance(card, dict) else {}


def load_weights(network: nn.Module, file: Path, backbone: str) -> LayoutFit:
    """Fill a network from a file in any usual layout.

    Args:
        backbone: the network's name, for messages.
    """
    return fill(network, read_tensors(file), backbone, str(file))


def begin_from_file(network: nn.Module, weights: str, backbone: str) -> None:
    """Fill a network from a run, an export or a file; `network.loaded` then says what was found."""
    start = parse_name(weights)
    file = weights_file(start)
    if file is None:
        raise ValueError(
            f"the weights {start} are not of the backbone {backbone!r}; expected a run, an export or a file"
        )
    fit = load_weights(network, file, backbone)
    setattr(network, "loaded", f"{file}: {fit.summary()}")  # noqa: B010, which torch's annotation refuses


def model_folder_hint(file: Path) -> str:
    """A line for a file that lies in the folder of a model of transformers, which says what the file does not."""
    folder = file.parent
    named = "open_clip" if (folder / "open_clip_config.json").is_file() else "hf"
    stated = named == "open_clip" or (folder / "config.json").is_file()
    return f"its folder is that of a model: {named}:{folder}" if stated and not (folder / CARD).is_file() else ""


def fill(network: nn.Module, tensors: Mapping[str, Tensor], backbone: str, source: str) -> LayoutFit:
    """Fill a network with tensors by name, of any usual layout."""
    try:
        fit = fit_layout(tensors, network)
    except MisfitError as error:
        seen = f"its first is {shorten(next(iter(tensors)), 80)!r}" if tensors else "it holds no tensors by name"
        way = model_folder_hint(Path(source)) or "is it of another --backbone?"
        raise ValueError(f"{source} does not fit backbone {backbone!r}: {error}; {seen}; {way}") from None
    network.load_state_dict(fit.tensors, strict=False)
    return fit
