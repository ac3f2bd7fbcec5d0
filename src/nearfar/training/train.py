"""Training: the only room that imports Lightning."""

import re
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from nearfar import _torchvision  # noqa: F401  before lightning, which imports torchvision
from nearfar.config import TrainConfig, completed
from nearfar.data.cache import locked
from nearfar.data.config import DataConfig
from nearfar.data.sources import check_apart
from nearfar.evaluation.results import Results
from nearfar.modalities import modality_class
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.settings import build
from nearfar.training.callbacks import ending
from nearfar.training.processes import is_first
from nearfar.training.run import Run


def train(
    data: str | Path | Mapping[str, Any] | DataConfig = "glyphs", *, out: str | Path | None = None, **settings: Any
) -> Encoder:
    """Pretrain an encoder: train, evaluate, report, as `nearfar train` does.

    Args:
        data: built-in data, a folder, a table, arrays, or a torchvision data set by name; or the keys of `DataConfig`:
            {"path": "photos/", "test": "other/"}.
        out: the run folder; None: the next free one under `runs/`.
        settings: the fields of `TrainConfig`, such as method="moco", epochs=100, optimizer={"lr": 0.03}; the rest
            is what the modality has for these data (`Modality.defaults`), then the defaults. A section with a main
            key may be that key's value: views="simclr".

    Returns:
        The trained encoder, as `nearfar.load` would.

    Raises:
        KeyboardInterrupt: where the run was stopped before its end, after a checkpoint was written.
        SystemExit: with status 0, where SIGTERM stopped it.
    """
    config: TrainConfig = build(TrainConfig, completed({"data": data, **settings}), "train")
    folder = free_folder(config) if out is None else Path(out)
    results = run(config, folder)
    if not is_first():
        raise SystemExit(0)  # the first process goes on alone
    if results is None:
        raise KeyboardInterrupt(f"stopped; go on with: nearfar train --resume {folder}")
    return load(folder)


def run(config: TrainConfig, folder: Path, *, resume: bool = False, console: Console | None = None) -> Results | None:
    """One run in a folder; None where it was stopped before its end."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file, expected a folder for the run")
    if not resume and is_first():
        check_free(folder, config)
    speaker = console or Console()

    def tell() -> None:
        begun = (folder / "config.yaml").exists()
        how = f"go on with: nearfar train --resume {shlex.quote(str(folder))}" if begun else "start it once more"
        speaker.print(f"ended by SIGTERM outside of the steps; {how}", soft_wrap=True, markup=False, highlight=False)

    with ending(tell):
        made = Run(config, folder, resume=resume, console=speaker)
        busy = f"{folder} is in training by another process; wait until it ends, or train in another folder"
        with locked(folder, busy) if is_first() else nullcontext():
            return made.go()


def resumed(folder: Path, *, console: Console | None = None, **settings: int | str | None) -> Results | None:
    """Go on with the run in a folder.

    Args:
        settings: what may be another than before: epochs, processes, nodes, strategy; None: as before.
    """
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is no run folder: it has no config.yaml")
    config = TrainConfig.from_yaml(folder / "config.yaml")
    changed: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    return run(replace(config, **changed), folder, resume=True, console=console)


def check_free(folder: Path, config: TrainConfig) -> None:
    """A run is written where nothing else is; one that was killed before its first checkpoint may begin again."""
    if (folder / "checkpoints").exists():
        raise FileExistsError(f"{folder} holds a run already; nearfar train --resume {folder} goes on with it")
    if folder.is_dir() and not (folder / "config.yaml").is_file():
        there = (entry.name for entry in folder.iterdir() if entry.name != "lock" and not entry.name.startswith("."))
        if other := min(there, default=None):
            raise FileExistsError(
                f"{folder} holds {other} and no run, expected a new or empty folder; give another one"
            )
    if modality_class(config.kind).walks_folders:
        check_apart(folder, config.data.path)


def free_folder(config: TrainConfig) -> Path:
    """runs/<data>-<method>, numbered where that is taken; of characters that every system has in names."""
    name = re.sub(r'[<>:"/\\|?*]+', "-", f"{Path(config.data.path).stem or 'data'}-{config.method}")
    number, folder = 1, Path("runs") / name
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder
