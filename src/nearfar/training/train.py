"""`nearfar.train`, and the run of a configuration in a folder: new or resumed."""

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from nearfar.config import TrainConfig, completed
from nearfar.data.cache import locked
from nearfar.data.config import DataConfig
from nearfar.data.sources import check_apart
from nearfar.evaluation.results import Results
from nearfar.methods import Method
from nearfar.modalities import modality_class
from nearfar.model.encoder import Encoder
from nearfar.plugins import named_by
from nearfar.progress import print_line
from nearfar.python_objects import PREFIX, is_object
from nearfar.settings import build, checked_values
from nearfar.training.attachments import Attachments, check_given_again, split_loggers
from nearfar.training.processes import is_rank_zero
from nearfar.training.python_inputs import check_objects, data_settings, give_again, method_settings, view_settings
from nearfar.training.resume import MAY_CHANGE
from nearfar.training.run import Run
from nearfar.training.signals import how_to_continue, stop_outside_steps


def train(
    data: Any = "glyphs",
    *,
    out: str | Path | None = None,
    method: str | type[Method] | Method | None = None,
    encoder: str | nn.Module | None = None,
    views: Any = None,
    epochs: int | None = None,
    callbacks: Any = None,
    logger: Any = None,
    resume: str | Path | None = None,
    **settings: Any,
) -> Encoder:
    """Pretrain an encoder: train, evaluate, report, as `nearfar train` does.

    A setting that is None or left out is what the data bring with them (`Modality.defaults`, `Modality.automatic`),
    else the default of `TrainConfig`.

    Args:
        data: built-in data, a folder, a table, arrays in a file, or a torchvision data set by name; or an object: a
            list of paths or texts, an array or tensor, (samples, labels), a map-style Dataset with items image, (image,
            label) or dict, an ImageFolder, a data set of Hugging Face, a frame of pandas or polars, or a function that
            returns an iterator. Or the keys of `DataConfig`: {"path": "photos/", "test": "other/"}, or splits:
            {"train": ..., "test": ...}. Objects in memory are in no file: who resumes the run gives them again.
        out: the run folder; None: the next free one under `runs/`.
        method: such as simclr, moco or byol, or MODULE:NAME; a class that inherits from `Method`, or an instance of one
            with its own encoder.
        encoder: the network: a name, such as "resnet18", or your own torch.nn.Module, of which a copy is trained.
        views: preset of augmentations; or a callable: a transform of torchvision or albumentations on each image, any
            other one on a batch (B, 3, H, W) uint8; several, one for each view; or a `nearfar.CustomViews`.
        epochs: passes over the data.
        callbacks: one of Lightning or several, called after nearfar's own. One that sets `trainer.should_stop` ends the
            training early, and the run is finished as usual.
        logger: "tensorboard", "wandb", "mlflow", "trackio", a Lightning logger, or a list of these.
        resume: folder of a run to continue with its own settings; only those in `MAY_CHANGE` (epochs, steps, processes,
            nodes, strategy) may be given beside it, and the objects that it was started with.
        settings: all other fields of `TrainConfig`, such as time="2h", batch_size=256, seed=1, device="cuda" or
            optimizer={"lr": 0.03}.

    Returns:
        The trained encoder, as `nearfar.load` would. With several processes every one of them gets it, and goes on.

    Raises:
        TrainingStopped: by Ctrl-C or SIGTERM before the end, after a checkpoint was written. A `KeyboardInterrupt`.
    """
    name, loggers = split_loggers(logger)
    several = callbacks if isinstance(callbacks, Sequence) else [] if callbacks is None else [callbacks]
    attachments = Attachments(tuple(several), tuple(loggers))
    named = {"epochs": epochs, "logger": name}
    given = {**{name: value for name, value in named.items() if value is not None}, **settings}
    if resume is not None:
        objects = {"data": None if _is_default(data) else data, "method": method, "encoder": encoder, "views": views}
        empty = [key for key, value in (("callbacks", callbacks), ("logger", logger)) if value == []]
        check_given_again(Path(resume), attachments, without=empty)
        return _resume(Path(resume), objects, {"out": out, **given}, attachments).trained_encoder()
    if data is None:
        raise ValueError("data is None, expected a path or a name, such as 'photos/', or 'glyphs' for built-in images")
    if encoder is not None and "backbone" in given:
        raise ValueError(f"encoder and backbone={given['backbone']!r} were given, expected one of them")
    given |= {**method_settings(method, encoder), **view_settings(views, given)}
    config: TrainConfig = build(TrainConfig, completed({**given, **data_settings(data, given)}), "train")
    check_objects(config)
    folder = free_folder(config) if out is None else Path(out)
    prepared, _ = _execute(config, folder, attachments=attachments)
    return prepared.trained_encoder()


def _is_default(data: Any) -> bool:
    return isinstance(data, str) and data == DataConfig.path


def _resume(folder: Path, objects: Mapping[str, Any], given: Mapping[str, Any], attachments: Attachments) -> Run:
    """Continue the run in a folder, with the objects that it was started with."""
    if fixed := [name for name, value in given.items() if value is not None and name not in MAY_CHANGE]:
        allowed = ", ".join(MAY_CHANGE)
        raise ValueError(
            f"{fixed[0]} was given with resume, which continues with the run's own settings: leave it out; "
            f"only {allowed} may change"
        )
    config = _resumed(folder, {name: value for name, value in given.items() if name in MAY_CHANGE})
    give_again(config, folder, **objects)
    return _execute(config, folder, resume=True, attachments=attachments)[0]


def run(
    config: TrainConfig,
    folder: Path,
    *,
    resume: bool = False,
    console: Console | None = None,
    all_metrics: bool = False,
) -> Results:
    """One run in a folder; `all_metrics` prints every metric at its end.

    Raises:
        TrainingStopped: by Ctrl-C or SIGTERM before the end.
    """
    return _execute(config, folder, resume=resume, console=console, all_metrics=all_metrics)[1]


def _execute(
    config: TrainConfig,
    folder: Path,
    *,
    resume: bool = False,
    console: Console | None = None,
    attachments: Attachments | None = None,
    all_metrics: bool = False,
) -> tuple[Run, Results]:
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file, expected a folder for the run")
    if not resume and is_rank_zero():
        check_free(folder, config)
    terminal = console or Console()

    def tell() -> None:
        print_line(terminal, f"ended by SIGTERM outside of the training steps; {how_to_continue(folder)}")

    with stop_outside_steps(folder, tell):
        prepared = Run(
            config, folder, resume=resume, console=terminal, attachments=attachments, all_metrics=all_metrics
        )
        busy = f"{folder} is in training by another process; wait until it ends, or train in another folder"
        with locked(folder, busy) if is_rank_zero() else nullcontext():
            return prepared, prepared.execute()


def resume_run(
    folder: Path, *, console: Console | None = None, all_metrics: bool = False, **settings: int | str | None
) -> Results:
    """Continue the run in a folder; `all_metrics` prints every metric at its end.

    Args:
        settings: those that may change: epochs, steps, processes, nodes, strategy; None: as before. Epochs replace a
            number of steps.
    """
    check_given_again(folder, Attachments())
    with named_by(folder / "config.yaml"):
        return run(_resumed(folder, settings), folder, resume=True, console=console, all_metrics=all_metrics)


def _resumed(folder: Path, settings: Mapping[str, Any]) -> TrainConfig:
    """The configuration of the run in a folder, with the settings that are not None."""
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no config.yaml")
    config = TrainConfig.from_yaml(folder / "config.yaml")
    changed = checked_values(TrainConfig, {k: v for k, v in settings.items() if v is not None}, "train")
    if "epochs" in changed:
        changed = {"steps": None, "time": None, **changed}
    return replace(config, **changed)


def check_free(folder: Path, config: TrainConfig) -> None:
    """Refuse a folder that holds a run with checkpoints, or other files, or that lies in the data."""
    if (folder / "checkpoints").exists():
        raise FileExistsError(f"{folder} holds a run already; nearfar train --resume {folder} continues it")
    if folder.is_dir() and not (folder / "config.yaml").is_file():
        there = (entry.name for entry in folder.iterdir() if entry.name != "lock" and not entry.name.startswith("."))
        if other := min(there, default=None):
            raise FileExistsError(
                f"{folder} holds {other} and no run, expected a new or empty folder; give another one"
            )
    if modality_class(config.kind).walks_folders:
        check_apart(folder, config.data.path)


def free_folder(config: TrainConfig) -> Path:
    """runs/DATA-METHOD with a number if that is taken, in characters that every file system allows."""
    name = re.sub(r'[<>:"/\\|?*]+', "-", f"{_short_name(config.data.path)}-{config.method}")
    number, folder = 1, Path("runs") / name
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def _short_name(data: str) -> str:
    """What a folder is called after: the last part of a path, or the kind and number of objects."""
    return data.removeprefix(PREFIX) if is_object(data) else Path(data).stem or "data"
