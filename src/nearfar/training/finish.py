"""The model of a run that was stopped: its newest checkpoint as `model.safetensors`, without training further."""

from pathlib import Path

from nearfar.config import TrainConfig
from nearfar.modalities import make_modality
from nearfar.model.card import make_card
from nearfar.model.load import load
from nearfar.model.save import CARD, MODEL, write_model
from nearfar.training import checkpoint

_ENCODER = "encoder."  # before the names of the encoder's weights in a method's state


def finish(run: str | Path) -> int:
    """Write the model of the newest checkpoint of a stopped run, so that `nearfar.load` opens it.

    The run can still be resumed. Features are as the network gives them: what is learned of them at the end of a run,
    such as whitening, is not.

    Args:
        run: its folder.

    Returns:
        The step of the checkpoint.

    Raises:
        FileExistsError: the run has a model already.
    """
    folder = Path(run).expanduser()
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is no run folder: it has no config.yaml")
    if (folder / MODEL).is_file() and (folder / CARD).is_file():
        raise FileExistsError(f"{folder} has a model already: {folder / MODEL}")
    if not any((folder / "checkpoints").glob("step-*")):
        raise FileNotFoundError(f"{folder} has no checkpoint yet; nearfar train --resume {folder} goes on with it")
    config = TrainConfig.from_yaml(folder / "config.yaml")
    state, _, _ = checkpoint.load_newest(folder / "checkpoints")
    weights = {name.removeprefix(_ENCODER): x for name, x in state["method"].items() if name.startswith(_ENCODER)}
    step = int(state["step"])
    card = make_card(config, make_modality(config).card(), data={"fingerprint": state.get("data")})
    write_model(weights, {**card, "stopped_at_step": step}, folder)
    load(folder)  # what was written can be read
    return step
