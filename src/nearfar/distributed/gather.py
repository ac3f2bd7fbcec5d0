"""Every process sees every row: the outputs of `encode` are gathered, with their gradient."""

from typing import Any

import torch
from torch import Tensor

from nearfar.nn.shard import Shard, is_distributed, shard_of


def gather(encoded: dict[str, Tensor], shard: Shard) -> dict[str, Tensor]:
    """The outputs (count, ...) of `encode` on each process as those of the global batch (total, ...), in rank order.

    Each process then contrasts all rows, and all get the same loss. The gradient of a process is that of its own rows,
    times the number of processes: trainers (DDP, FSDP) average gradients over processes, and the encoder needs their
    sum. The parameters of `contrast` itself, such as a learned temperature, have their full gradient on each process,
    for which the average is right.
    """
    return {name: gather_rows(x, shard) for name, x in encoded.items()}


def gather_rows(x: Tensor, shard: Shard | None = None) -> Tensor:
    """The rows of this process (count, ...) as those of all processes (total, ...), in rank order, differentiable.

    For a training loop of your own under DDP, FSDP or another trainer that averages gradients over processes: a loss of
    gathered rows then has the value and the gradient of one process with the full batch. Labels and ids are gathered
    by the same function. A collective: every process must call it. Without `torch.distributed` x is returned as it is.

    Args:
        x: of any type; processes may have different numbers of rows.
        shard: `shard_of(len(x), x.device)`, to share it between calls: else the numbers of rows are asked for anew.

    >>> z = torch.eye(2)  # one process
    >>> gather_rows(z) is z
    True
    """
    if shard is None:
        if not is_distributed():
            return x
        shard = shard_of(len(x), x.device)
    if not x.requires_grad:
        return shard.gather(x)
    gathered: Tensor = _Gather.apply(x, shard)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return shard.gather(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.shard.select(grad) * ctx.shard.world_size, None
