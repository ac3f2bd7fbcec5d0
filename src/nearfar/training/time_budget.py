"""`--time`: how many steps fit, found from the first few, and fixed before the run begins."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from nearfar.config import TrainConfig, seconds_in
from nearfar.progress import print_line
from nearfar.training.processes import is_rank_zero
from nearfar.training.setup import TrainingSetup
from nearfar.training.start_comparison import CHECKS
from nearfar.training.trial import Trial

LEAST_STEPS = 20  # a shorter run learns nothing, whatever the time
_TRIAL_SECONDS, _TRIAL_STEPS = 3.0, 12
_WAIT = 600.0  # seconds that other ranks wait for rank 0
_TRAINING = 0.95  # part of the time that is left for steps: health checks and checkpoints take the rest


def fix_steps(setup: TrainingSetup, folder: Path, console: Console, *, spent: float = 0.0) -> None:
    """Turn the time of the configuration into a number of steps, the same on every rank.

    Rank 0 measures and writes `config.yaml`; other ranks read the number there. A resumed run has its number already.

    Args:
        spent: seconds of the time that a trial before it took.
    """
    config = setup.config
    if config.time is None or config.steps is not None:
        return
    if not is_rank_zero():
        written = config_of_rank_zero(folder, lambda config: config.steps is not None)
        assert written.steps is not None
        setup.set_steps(written.steps)
        return
    each = seconds_per_step(setup)
    steps = max(LEAST_STEPS, int(_TRAINING * (seconds_in(config.time) - spent) / each))
    setup.set_steps(steps)
    epochs = steps / setup.steps_per_epoch
    print_line(console, f"{config.time} of training: {steps:,} steps of {each:.2g} s, {epochs:.3g} epochs")


def seconds_per_step(setup: TrainingSetup) -> float:
    """The median time of a training step, on a copy of the method that is thrown away."""
    trial = Trial(setup.config, setup.modality, setup.train, setup.device, setup.method_labels, setup.guide)
    lengths: list[float] = []
    for seconds in trial.steps(setup.loader, _TRIAL_STEPS):
        lengths.append(seconds)
        if sum(lengths) > _TRIAL_SECONDS and len(lengths) > 2:
            break
    setup.modality.forget_buffers()
    return statistics.median(lengths[1:] or lengths) * setup.config.accumulate_batches


def comparison_seconds(setup: TrainingSetup) -> float:
    """The time that comparing with the start takes in the whole run, if it is to be counted; measured by the start."""
    config = setup.config
    if config.time is None or config.steps is not None or setup.comparison is None or not is_rank_zero():
        return 0.0
    begun = time.perf_counter()
    setup.comparison.prepare()
    return (time.perf_counter() - begun) * (1 + CHECKS)


def config_of_rank_zero(folder: Path, decided: Callable[[TrainConfig], bool]) -> TrainConfig:
    """What rank 0 wrote to `config.yaml`, once it has decided what all ranks must share."""
    end = time.monotonic() + _WAIT
    while time.monotonic() < end:
        if (folder / "config.yaml").is_file() and decided(config := TrainConfig.from_yaml(folder / "config.yaml")):
            return config
        time.sleep(0.2)
    raise TimeoutError(
        f"rank 0 wrote no number of steps and views to {folder}, which all must share; give --steps, --views.color, "
        "--views.orientation and --views.scale, not --time"
    )
