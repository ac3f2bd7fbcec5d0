"""Training by Lightning: the trainer, the steps, and what happens when they stop or fail."""

import logging
import signal
import warnings
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from nearfar.methods import Method
from nearfar.methods.advice import Verdict
from nearfar.model import checkpoint
from nearfar.progress import print_line
from nearfar.training._lightning import lightning
from nearfar.training.advice import advise
from nearfar.training.build_method import lay_out
from nearfar.training.callbacks import TrainingMonitor
from nearfar.training.errors import NotFiniteError, ProcessLostError
from nearfar.training.lightning_module import Pretraining, Steps
from nearfar.training.loggers import close_loggers, open_loggers
from nearfar.training.online_evaluation import OnlineEvaluation
from nearfar.training.processes import (
    is_lost_process,
    is_rank_zero,
    leave_process_group,
    rendezvous_address,
    shards_weights,
    strategy,
)
from nearfar.training.setup import TrainingSetup
from nearfar.training.signals import TrainingStopped, how_to_continue, stop_after_step

_BANK = 4000  # training samples that the online k-NN searches
_PRECISION = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def fit(setup: TrainingSetup, folder: Path, console: Console, state: dict[str, Any] | None = None) -> Method:
    """Train to the last step.

    Args:
        folder: for checkpoints and logs, which rank 0 writes.
        state: of the checkpoint to continue from, emptied here; None: from the first step.

    Returns:
        The trained method; with FSDP, all of its weights on rank 0 and this rank's part on the others.

    Raises:
        TrainingStopped: after Ctrl-C or SIGTERM, once the step is finished and saved.
        NotFiniteError: the loss or its gradient is NaN or infinite.
        ProcessLostError: another process died.
    """
    config = setup.config
    evaluation = setup.comparison or _online_evaluation(setup)
    monitor = TrainingMonitor(folder, evaluation, setup.steps_per_epoch, console, setup.fingerprint)
    module = Pretraining(
        setup.method,
        config,
        setup.modality,
        setup.train,
        total=setup.total_steps,
        ids=setup.modality.ids(setup.train),
        labels=setup.method_labels,
        checkpoint=lambda: newest_checkpoint(folder),
        guide=setup.guide,
    )
    if state is not None:
        monitor.resume(state, module)
        state.clear()  # frees a copy of all weights
    else:
        for verdict in _advice(setup, module):
            monitor.announce(verdict, 0)
    if not shards_weights(config):  # FSDP shards by rows, in their usual order
        lay_out(setup.method, config)  # with the momentum encoder
    if module.done < setup.total_steps:
        _train(setup, module, monitor, console)
    return module.whole_method(monitor.final_weights) if is_rank_zero() else setup.method


def newest_checkpoint(folder: Path) -> str:
    """The path of the newest checkpoint of a run folder, for messages."""
    found = checkpoint.numbered(folder / "checkpoints")
    return str(found[-1]) if found else "none yet"


def _online_evaluation(setup: TrainingSetup) -> OnlineEvaluation | None:
    if setup.validation is None:
        return None
    bank, samples = None, len(setup.train)
    if setup.train.labels is not None:
        bank = setup.train.subset(torch.linspace(0, samples - 1, min(_BANK, samples)).long())
    return OnlineEvaluation(setup.validation, bank, setup.modality)


def _advice(setup: TrainingSetup, module: Pretraining) -> list[Verdict]:
    return advise(
        setup.config,
        setup.method,
        samples=len(setup.train),
        total=setup.total_steps,
        ids=module.ids,
        groups=setup.train.groups,
    )


def _train(setup: TrainingSetup, module: Pretraining, monitor: TrainingMonitor, console: Console) -> None:
    """Run the remaining steps; raises if they do not come to their end."""
    config, total = setup.config, setup.total_steps
    prefetched = 1 if config.micro_batch_size else 2  # less where memory is scarce and a step is long
    first = module.done * config.accumulate_batches
    pin = setup.device.type == "cuda"
    steps = Steps(setup.train, setup.loader, first, total * config.accumulate_batches, prefetched, pin=pin)
    if config.nodes == 1 and (others := config.processes - 1) > 0:
        print_line(console, f"waiting for {others} other process{'es' * (others > 1)} to start and open the data")
    trainer = make_trainer(setup, monitor, done=module.done)
    if config.nodes > 1:
        print_line(console, f"waiting for the processes of {config.nodes} machines, at {rendezvous_address()}")

    def stop(number: int) -> None:
        monitor.stop_signal = number
        console.print("stopping after this step")

    try:
        with stop_after_step(stop):
            trainer.fit(module, train_dataloaders=steps)
    except lightning.pytorch.utilities.exceptions.SIGTERMException:  # how Lightning ends; the step before is saved
        monitor.stop_signal = signal.SIGTERM
    except SystemExit as error:  # how Lightning ends after a second Ctrl-C
        raise KeyboardInterrupt from error
    except NotFiniteError as error:
        monitor.announce(Verdict("error", "not_finite", str(error)), module.done)
        raise
    except Exception as error:  # of loading, the disk or the device
        if module.done:
            newest = newest_checkpoint(monitor.folder)
            print_line(console, f"ended at step {module.done} of {total}; the last good checkpoint is {newest}")
        if config.processes * config.nodes > 1 and is_lost_process(error):
            raise ProcessLostError(monitor.folder) from error
        raise
    finally:
        close_loggers(config, trainer.loggers)
    if module.done < total and not monitor.stop_signal and setup.attachments.callbacks:
        print_line(console, f"ended by a callback at step {module.done} of {total}")
    elif module.done < total:
        print_line(console, f"stopped at step {module.done} of {total}; {how_to_continue(monitor.folder)}")
        leave_process_group()
        raise TrainingStopped(monitor.folder, monitor.stop_signal or signal.SIGINT)


def make_trainer(setup: TrainingSetup, monitor: TrainingMonitor, *, done: int) -> lightning.Trainer:
    """Lightning's trainer for the steps that are left after `done` of them."""
    config, folder, given = setup.config, monitor.folder, setup.attachments
    loggers = open_loggers(config, folder, done, given.loggers) if is_rank_zero() else []
    parts = lightning.pytorch.callbacks
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning.*")
    return lightning.Trainer(
        accelerator="gpu" if setup.device.type == "cuda" else setup.device.type,
        devices=config.processes,
        num_nodes=config.nodes,
        strategy=strategy(config, setup.device.type, idle=setup.method.idle),
        precision=_PRECISION[config.precision],  # type: ignore[arg-type]
        max_steps=setup.total_steps - done,
        accumulate_grad_batches=config.accumulate_batches,
        gradient_clip_val=config.optimizer.clip_norm,
        callbacks=[monitor, *given.callbacks],
        logger=loggers or False,
        default_root_dir=folder,
        enable_checkpointing=any(isinstance(each, parts.Checkpoint) for each in given.callbacks),
        enable_progress_bar=any(isinstance(each, parts.ProgressBar) for each in given.callbacks),
        enable_model_summary=any(isinstance(each, parts.ModelSummary) for each in given.callbacks),
        use_distributed_sampler=False,
    )
