"""Start weights of encoders of sounds by name: the backbone they are of, and how sounds are read for it."""

from pathlib import Path
from typing import Any

from nearfar.modalities.sound.backbones import AUDIO, AudioEncoder
from nearfar.modalities.sound.huggingface import stated_rate
from nearfar.weights.files import read_tensors
from nearfar.weights.huggingface import TRANSFORMERS
from nearfar.weights.layouts import MisfitError, fit_layout
from nearfar.weights.load import stated_card, weights_file
from nearfar.weights.names import WeightsName


def start_settings(start: WeightsName) -> tuple[str | None, dict[str, Any]]:
    """The backbone of weights, None if it is not known, and the settings of `SoundConfig` that go with it."""
    if start.kind == "hf":
        return TRANSFORMERS + start.name, {"sample_rate": stated_rate(start.name)}
    if start.kind == "folder":
        return _run_settings(Path(start.name))
    file = weights_file(start) if start.kind == "file" else None
    return (None if file is None else _identify(file)), {}


def _run_settings(folder: Path) -> tuple[str, dict[str, Any]]:
    card = stated_card(folder)
    try:
        sound = {key: value for key, value in card["config"]["sound"].items() if value is not None}
        return str(card["backbone"]), sound
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder} is not a run on sounds: its card has no {error}") from None


def _identify(file: Path) -> str | None:
    """Which of our encoders a file is of, such as one of BYOL-A's authors."""
    tensors = read_tensors(file)
    for name, shape in AUDIO.items():
        try:
            fit_layout(tensors, AudioEncoder(**shape))
            return name
        except MisfitError:
            continue
    return None
