"""Every process sees every row: the outputs of `encode` are gathered, with their gradient."""

from typing import Any

import torch
from torch import Tensor

from nearfar.nn.shard import Shard


def gather(encoded: dict[str, Tensor], shard: Shard) -> dict[str, Tensor]:
    """The outputs (count, ...) of `encode` on each process as those of the global batch (total, ...), in rank order.

    Each process then contrasts all rows, and all get the same loss. The gradient of a process is that of its own rows,
    times the number of processes: trainers (DDP, FSDP) average gradients over processes, and the encoder needs their
    sum. The parameters of `contrast` itself, such as a learned temperature, have their full gradient on each process,
    for which the average is right.
    """
    return {name: gather_rows(x, shard) for name, x in encoded.items()}


def gather_rows(x: Tensor, shard: Shard) -> Tensor:
    """(count, ...) to (total, ...), with the gradient that `gather` describes."""
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
