"""Several processes: the rank of this one, what launched them, and Lightning's strategy."""

import inspect
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from nearfar.config import TrainConfig

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy


def is_rank_zero(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this is the process that writes and prints: the only one, or rank 0."""
    if "TORCHELASTIC_RUN_ID" in environment:  # torchrun; RANK alone may be left over from anything
        return environment.get("RANK", "0") == "0"
    if "SLURM_PROCID" in environment and _launched_by_slurm():
        return environment["SLURM_PROCID"] == "0"
    return environment.get("NODE_RANK", "0") == "0" and environment.get("LOCAL_RANK", "0") == "0"


def _launched_by_slurm() -> bool:
    """Whether `srun` started this process, as Lightning decides it; an interactive shell under SLURM does not count."""
    if "SLURM_NTASKS" not in os.environ:
        return False
    from nearfar.training._lightning import lightning

    return bool(lightning.fabric.plugins.environments.slurm.SLURMEnvironment.detect())


def with_launched_processes(config: TrainConfig) -> TrainConfig:
    """The configuration with the number of processes that torchrun or SLURM started, if one of them did."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        world, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    elif int(os.environ.get("SLURM_NTASKS", "1")) > 1 and _launched_by_slurm():
        world, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES", "1"))
        here = world // nodes
    else:
        if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys() and int(os.environ["WORLD_SIZE"]) > 1:
            raise ValueError(
                f"RANK {os.environ['RANK']} of WORLD_SIZE {os.environ['WORLD_SIZE']} are set, and not by torchrun: "
                "start nearfar with torchrun on each machine, or unset them"
            )
        return config
    return replace(config, processes=here, nodes=world // here)


def shards_weights(config: TrainConfig) -> bool:
    """Whether each process holds a part of the weights (FSDP); a single process has all of them."""
    return config.strategy == "fsdp" and config.processes * config.nodes > 1


def strategy(config: TrainConfig, device_type: str, *, idle: bool = False) -> "Strategy | str":
    """Lightning's strategy for one process, DDP or FSDP.

    Args:
        idle: whether some parameters take no part in some steps.
    """
    if config.processes * config.nodes == 1:
        return "auto"
    for name in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if sys.flags.safe_path:  # Lightning starts the others without Python's flags
        os.environ["PYTHONSAFEPATH"] = "1"
    backend = "nccl" if device_type == "cuda" else "gloo"
    from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
    from torch.nn.parallel import DistributedDataParallel

    if shards_weights(config):
        world = config.processes * config.nodes
        return ModelParallelStrategy(world, 1, save_distributed_checkpoint=False, process_group_backend=backend)
    # Every process computes the same buffers, so none are sent.
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # its older name
    more: dict[str, Any] = {buffers: False}
    return DDPStrategy(process_group_backend=backend, find_unused_parameters=idle, **more)


def rank_and_world() -> tuple[int, int]:
    """Of the processes that are joined now; (0, 1) where none are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def is_lost_process(error: BaseException) -> bool:
    """Whether an error is what the other processes see when one of them dies."""
    return isinstance(error, dist.DistError) or any(
        word in str(error) for word in ("Connection closed by peer", "Connection reset by peer", "gloo", "NCCL")
    )


def rendezvous_address() -> str:
    """Address and port at which the processes of several machines connect."""
    return f"{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{os.environ.get('MASTER_PORT', '(any free port)')}"


def leave_process_group(*, wait: bool = False) -> None:
    """Leave torch's process group, so that rank 0 evaluates without the others; nothing if there is none.

    Args:
        wait: until every process has come here.
    """
    if dist.is_available() and dist.is_initialized():
        if wait:
            dist.barrier()
        dist.destroy_process_group()
