"""A run that was stopped before it had a model: its newest checkpoint, opened as a finished run's model is."""

from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from nearfar.config import TrainConfig
from nearfar.data.cache import is_locked
from nearfar.modalities import make_modality
from nearfar.model import checkpoint
from nearfar.model.card import Card, make_card, read_card
from nearfar.model.save import CARD, MODEL
from nearfar.python_objects import resume_hint

CONFIG, CHECKPOINTS = "config.yaml", "checkpoints"
_ENCODER = "encoder."  # before the names of the encoder's weights in a method's state


class StoppedRun(NamedTuple):
    """The newest checkpoint that can be read."""

    card: Card
    weights: dict[str, Tensor]
    step: int


def has_model(folder: Path) -> bool:
    """Whether a folder is a finished run or an export."""
    return (folder / MODEL).is_file() and (folder / CARD).is_file()


def is_stopped(folder: Path) -> bool:
    """Whether a folder is a run that has a checkpoint and no model: stopped, or still in training."""
    return not has_model(folder) and (folder / CONFIG).is_file() and bool(checkpoint.numbered(folder / CHECKPOINTS))


def stated_card(folder: Path) -> Card:
    """The card of a run or an export; of a stopped run the one that its configuration stands for."""
    if not is_stopped(folder):
        return read_card(folder / CARD)
    config = TrainConfig.from_yaml(folder / CONFIG)
    return make_card(config, make_modality(config).card())


def open_stopped(folder: Path) -> StoppedRun:
    """What a finished run's `model.safetensors` and `card.json` hold, of the newest checkpoint.

    Features are as the network gives them: what is learned of them at the end of a run, such as whitening, is not.
    """
    state, _, _ = checkpoint.load_newest(folder / CHECKPOINTS, ("method",))
    weights = {name.removeprefix(_ENCODER): x for name, x in state["method"].items() if name.startswith(_ENCODER)}
    step, card = int(state["step"]), stated_card(folder)
    data = {**card["data"], "fingerprint": state.get("data")}
    return StoppedRun({**card, "data": data, "stopped_at_step": step}, weights, step)


def stopped_note(folder: Path, step: int) -> str:
    """What a user should know who opens it."""
    if is_locked(folder):
        return f"{folder} is in training: this is its newest checkpoint, of step {step:,}"
    return (
        f"{folder} was stopped: this is its newest checkpoint, of step {step:,}; continue with: {resume_hint(folder)}"
    )
