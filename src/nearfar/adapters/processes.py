"""Losses of this process' rows against the rows of all processes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nearfar.distributed.ring import RingBackend
from nearfar.losses.engine.backends import use_backend
from nearfar.nn.shard import Shard, is_distributed, shard_of

__all__ = ["is_distributed", "loss_over_processes", "refuse", "shard_and_ids"]

Loss = Callable[[Tensor], Tensor]  # of ids (B,), a different one for each row of all processes


def shard_and_ids(rows: Tensor) -> tuple[Shard, Tensor]:
    """The shard that these rows are, and their (B,) ids among the rows of all processes."""
    shard = shard_of(len(rows), rows.device)
    return shard, torch.arange(shard.first, shard.first + shard.count, device=rows.device)


def loss_over_processes(loss: Loss, rows: Tensor) -> Tensor:
    """The loss of this process' rows, each against the rows of all processes.

    The gradient of a row is that of the sum of all processes' losses, since the row is a key for each of them. DDP
    averages over the processes, which gives the gradient of the mean loss.
    """
    shard, ids = shard_and_ids(rows)
    with use_backend(RingBackend(shard)):
        return loss(ids)


def refuse(option: str, value: Any, expected: str) -> None:
    """Raise for an option that is not supported."""
    raise ValueError(f"{option} is {value!r}, expected {expected}")
