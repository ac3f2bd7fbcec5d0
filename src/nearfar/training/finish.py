"""The model of a run that was stopped: its newest checkpoint as `model.safetensors`, without training further."""

from pathlib import Path

from nearfar.model import checkpoint
from nearfar.model.load import load
from nearfar.model.save import MODEL, write_model
from nearfar.model.stopped import CHECKPOINTS, CONFIG, has_model, open_stopped


def finish(run: str | Path) -> int:
    """Write the model of the newest checkpoint of a stopped run, for programs that read files.

    `nearfar.load` opens such a run without it. The run can still be resumed. Features are as the network gives them:
    what is learned of them at the end of a run, such as whitening, is not.

    Args:
        run: its folder.

    Returns:
        The step of the checkpoint.

    Raises:
        FileExistsError: the run has a model already.
    """
    folder = Path(run).expanduser()
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no {CONFIG}")
    if has_model(folder):
        raise FileExistsError(f"{folder} has a model already: {folder / MODEL}")
    if not checkpoint.numbered(folder / CHECKPOINTS):
        raise FileNotFoundError(f"{folder} has no checkpoint yet; nearfar train --resume {folder} continues it")
    stopped = open_stopped(folder)
    write_model(stopped.weights, stopped.card, folder)
    load(folder)  # what was written can be read
    return stopped.step
