"""Every process sees every row: what `encode` made of each share is put together, with its gradient."""

from typing import Any

import torch
from torch import Tensor

from nearfar.nn.shard import Share, rows_of_all


def gather(encoded: dict[str, Tensor], share: Share) -> dict[str, Tensor]:
    """What `encode` made of the rows of each process, each (count, ...), as that of all (total, ...), by rank.

    Each process then contrasts all rows, and all get the same loss. The gradient that comes back to a process is that
    of its own rows, times the number of processes: trainers (DDP, FSDP) average the gradients of the processes, and
    what belongs to the encoder is their sum. The parameters of `contrast` itself, such as a learned temperature, have
    their whole gradient on each process, and the average is right as it is.
    """
    return {name: gather_rows(x, share) for name, x in encoded.items()}


def gather_rows(x: Tensor, share: Share) -> Tensor:
    """(count, ...) to (total, ...), with the gradient that `gather` describes."""
    if not x.requires_grad:
        return rows_of_all(x, share)
    gathered: Tensor = _Gather.apply(x, share)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: Share) -> Tensor:
        ctx.share = share
        return rows_of_all(x, share)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.share.own(grad) * ctx.share.world, None
