"""Callbacks and loggers of a run: objects that the caller gives, and names of loggers. Needs no Lightning."""

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearfar.config import TrainConfig
from nearfar.safe_read import read_json

LOGGERS = ("tensorboard", "wandb", "mlflow", "trackio")  # each the name of its package, too
FILE = "attachments.json"


@dataclass(frozen=True)
class Attachments:
    """Objects of the caller that take part in training and that no run folder can hold.

    Attributes:
        callbacks: of Lightning, called after nearfar's own.
        loggers: of Lightning, beside those that the configuration names.
    """

    callbacks: Sequence[Any] = field(default_factory=tuple)
    loggers: Sequence[Any] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for key, objects, hook in (
            ("callbacks", self.callbacks, "on_train_batch_end"),
            ("logger", self.loggers, "log_metrics"),
        ):
            for each in objects:
                if not hasattr(each, hook) or isinstance(each, type):
                    raise TypeError(f"{key} has {each!r}, expected objects of lightning.pytorch with {hook}")

    def names(self) -> dict[str, list[str]]:
        """What they are."""
        every = {"callbacks": self.callbacks, "logger": self.loggers}
        return {key: [type(each).__name__ for each in objects] for key, objects in every.items() if objects}

    def save(self, folder: Path) -> None:
        """Write what they are, so that a resumed run can ask for them."""
        if names := self.names():
            (folder / FILE).write_text(json.dumps(names), encoding="utf-8")


def split_loggers(logger: Any) -> tuple[str | None, list[Any]]:
    """Names of loggers as the configuration has them, and logger objects, from one or a list of either.

    >>> split_loggers(["tensorboard", "wandb"]), split_loggers(None)
    (('tensorboard,wandb', []), (None, []))
    """
    every = [] if logger is None else list(logger) if isinstance(logger, list | tuple) else [logger]
    names = [each for each in every if isinstance(each, str)]
    return ",".join(names) or None, [each for each in every if not isinstance(each, str)]


def check_given_again(folder: Path, given: Attachments, *, without: Sequence[str] = ()) -> None:
    """Refuse to resume a run without the callbacks and loggers that it was started with.

    Args:
        without: those that the caller leaves out knowingly, by an empty list.
    """
    try:
        stated = read_json(folder / FILE)
    except FileNotFoundError:
        return
    missing = [key for key in stated if key not in given.names() and key not in without]
    if missing:
        key = missing[0]
        raise ValueError(
            f"the run in {folder} was started with {key} {', '.join(stated[key])}, which no file holds; resume it from "
            f"Python with nearfar.train(resume=..., {key}=[...]), or with {key}=[] to continue without"
        )


def logger_names(config: TrainConfig) -> list[str]:
    """The loggers that a configuration names, each once."""
    named = [name.strip() for name in (config.logger or "").split(",") if name.strip()]
    return list(dict.fromkeys([*named, *(["tensorboard"] if config.tensorboard else [])]))


def check_loggers(config: TrainConfig) -> None:
    """Refuse unknown loggers, and those whose package is missing, before any data are read."""
    for name in logger_names(config):
        if name not in LOGGERS:
            raise ValueError(f"--logger is {config.logger!r}, expected one or more of {','.join(LOGGERS)}")
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"--logger {name} needs the package {name}: pip install 'nearfar[{name}]'")
