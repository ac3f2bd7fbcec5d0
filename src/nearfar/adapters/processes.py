"""Rows of this process against those of all, for losses whose value is this process' own part."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nearfar.distributed.ring import Ring
from nearfar.losses.engine.backends import sums_by
from nearfar.nn.shard import Share, share_of

Loss = Callable[[Tensor], Tensor]  # of ids (B,), that are its own for each row of all processes


def several() -> bool:
    """Whether other processes have rows, too."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def share_and_ids(rows: Tensor) -> tuple[Share, Tensor]:
    """The share that these rows are, and their (B,) ids among those of all processes."""
    share = share_of(len(rows), rows.device)
    return share, torch.arange(share.first, share.first + share.count, device=rows.device)


def among_all(loss: Loss, rows: Tensor) -> Tensor:
    """The loss of this process' rows, each against those of all.

    The gradient of a row is that of the sum of all processes' losses, since each may have the row among its keys. DDP
    averages over the processes, and what it gets is the gradient of the mean loss.
    """
    share, ids = share_and_ids(rows)
    with sums_by(Ring(share)):
        return loss(ids)


def refuse(option: str, value: Any, expected: str) -> None:
    """An option that is not carried."""
    raise ValueError(f"{option} is {value!r}, expected {expected}")
