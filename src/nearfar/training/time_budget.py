"""`--time`: how many steps fit, found from the first few, and fixed before the run begins."""

import statistics
import time
from pathlib import Path

import torch
from rich.console import Console

from nearfar.config import TrainConfig, seconds_in
from nearfar.progress import print_line
from nearfar.training.build_method import build_method
from nearfar.training.processes import is_rank_zero
from nearfar.training.setup import TrainingSetup

LEAST_STEPS = 20  # a shorter run learns nothing, whatever the time
_TRIAL_SECONDS, _TRIAL_STEPS = 3.0, 12
_WAIT = 600.0  # seconds that other ranks wait for rank 0
_TRAINING = 0.95  # part of the time that is left for steps: health checks and checkpoints take the rest


def fix_steps(setup: TrainingSetup, folder: Path, console: Console) -> None:
    """Turn the time of the configuration into a number of steps, the same on every rank.

    Rank 0 measures and writes `config.yaml`; other ranks read the number there. A resumed run has its number already.
    """
    config = setup.config
    if config.time is None or config.steps is not None:
        return
    if not is_rank_zero():
        setup.set_steps(_steps_of_rank_zero(folder))
        return
    each = seconds_per_step(setup)
    steps = max(LEAST_STEPS, int(_TRAINING * seconds_in(config.time) / each))
    setup.set_steps(steps)
    epochs = steps / setup.steps_per_epoch
    print_line(console, f"{config.time} of training: {steps:,} steps of {each:.2g} s, {epochs:.3g} epochs")


def seconds_per_step(setup: TrainingSetup) -> float:
    """The median time of a training step, on a copy of the method that is thrown away."""
    from nearfar.training.lightning_module import Pretraining, Steps

    config = setup.config
    method = build_method(config, len(setup.train)).to(setup.device)
    if config.channels_last:
        method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ids = setup.modality.ids(setup.train)
    trial = Pretraining(
        method, config, setup.modality, setup.train, total=10**9, ids=ids, labels=setup.method_labels, checkpoint=str
    )
    optimizer, lengths, start = trial.configure_optimizers(), [], time.perf_counter()
    half = torch.bfloat16 if config.precision == "bf16" else torch.float16
    for number, index, samples in Steps(setup.train, setup.loader, 0, _TRIAL_STEPS):
        begun = time.perf_counter()
        with torch.autocast(setup.device.type, dtype=half, enabled=config.precision != "32"):
            loss = trial.training_step((number, index, samples.to(setup.device)), 0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        float(loss.detach())  # waits for the device
        lengths.append(time.perf_counter() - begun)
        if time.perf_counter() - start > _TRIAL_SECONDS and len(lengths) > 2:
            break
    setup.modality.forget_buffers()
    return statistics.median(lengths[1:] or lengths) * config.accumulate_batches


def _steps_of_rank_zero(folder: Path) -> int:
    end = time.monotonic() + _WAIT
    while time.monotonic() < end:
        if (folder / "config.yaml").is_file():
            steps = TrainConfig.from_yaml(folder / "config.yaml").steps
            if steps is not None:
                return steps
        time.sleep(0.2)
    raise TimeoutError(f"rank 0 wrote no number of steps to {folder}, which all must share; give --steps, not --time")
