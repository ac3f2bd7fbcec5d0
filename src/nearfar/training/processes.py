"""Several processes: who this one is, who started them, and how Lightning joins them."""

import inspect
import logging
import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch.nn.parallel import DistributedDataParallel

from nearfar.config import TrainConfig


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this is the process that writes and speaks: the only one, or that of rank 0."""
    if "TORCHELASTIC_RUN_ID" in environment:  # torchrun; RANK alone may be left over from anything
        return environment.get("RANK", "0") == "0"
    if "SLURM_PROCID" in environment and SLURMEnvironment.detect():
        return environment["SLURM_PROCID"] == "0"
    return environment.get("NODE_RANK", "0") == "0" and environment.get("LOCAL_RANK", "0") == "0"


def as_launched(config: TrainConfig) -> TrainConfig:
    """The configuration with as many processes as torchrun or SLURM has started, where one of them did."""
    if TorchElasticEnvironment.detect():
        every, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    elif SLURMEnvironment.detect() and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        every, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES", "1"))
        here = every // nodes
    else:
        if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys() and int(os.environ["WORLD_SIZE"]) > 1:
            raise ValueError(
                f"RANK {os.environ['RANK']} of WORLD_SIZE {os.environ['WORLD_SIZE']} are set, and not by torchrun: "
                "start nearfar by torchrun in each place, or unset them"
            )
        return config
    return replace(config, processes=here, nodes=every // here)


def shares_weights(config: TrainConfig) -> bool:
    """Whether processes hold the parts of the weights; one alone has all of them."""
    return config.strategy == "fsdp" and config.processes * config.nodes > 1


def strategy(config: TrainConfig, device_type: str, *, idle: bool = False) -> Strategy | str:
    """Lightning's, of one process or several.

    Args:
        idle: whether some parameters take no part in some steps.
    """
    if config.processes * config.nodes == 1:
        return "auto"
    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    backend = "nccl" if device_type == "cuda" else "gloo"
    if shares_weights(config):
        world = config.processes * config.nodes
        return ModelParallelStrategy(world, 1, save_distributed_checkpoint=False, process_group_backend=backend)
    # Buffers are the same on all, since every process computes them from what all have: none need be sent.
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # its older name
    more: dict[str, Any] = {buffers: False}
    return DDPStrategy(process_group_backend=backend, find_unused_parameters=idle, **more)


def rank_and_world() -> tuple[int, int]:
    """Of the processes that are joined now; (0, 1) where none are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def is_lost(error: BaseException) -> bool:
    """Whether an error is what the others see when a process of the run dies."""
    return isinstance(error, dist.DistError) or any(
        word in str(error) for word in ("Connection closed by peer", "Connection reset by peer", "gloo", "NCCL")
    )


def lost(folder: Path) -> RuntimeError:
    """The line for it."""
    run = shlex.quote(str(folder))
    return RuntimeError(
        "another process of the run died or cannot be reached; go on, with as many as there are, by: "
        f"nearfar train --resume {run} --processes N"
    )


def meeting_point() -> str:
    """Where the processes of several machines find each other."""
    return f"{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{os.environ.get('MASTER_PORT', '(any free port)')}"


def part_ways() -> None:
    """End the joining: what follows is done by the first process alone."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
