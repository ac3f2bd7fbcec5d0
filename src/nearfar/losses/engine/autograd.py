"""Helpers of the engine's autograd functions."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def no_autocast(like: Tensor) -> AbstractContextManager[Any]:
    """Autocast off: compute in the type that the tensors have."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


Backward = Callable[..., tuple[Tensor | None, ...]]


def once_differentiable(backward: Backward) -> Backward:
    """A backward pass whose result raises when it is differentiated again.

    torch's decorator of this name raises only if the incoming gradient has a graph. Where that is constant, as under a
    plain sum, a second derivative would silently be zero.
    """

    @wraps(backward)
    def first_only(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():  # it is under create_graph=True
            return found
        return tuple(None if g is None else _NotDifferentiable.apply(g, *ctx.saved_tensors) for g in found)  # type: ignore[no-untyped-call]

    return first_only


class _NotDifferentiable(torch.autograd.Function):
    """Returns its first argument; raises in its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *_: Tensor | None) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise RuntimeError("a loss of nearfar was differentiated twice, expected once: it has no second derivative")
