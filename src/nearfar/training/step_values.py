"""Loss and gradient norm of each step as numbers, and the check that they are finite, without waiting for a device."""

from collections.abc import Callable
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor


class _Copy(NamedTuple):
    """Values on their way to the host."""

    values: Tensor  # (2,) loss and gradient norm
    arrived: torch.cuda.Event | None
    step: int
    strict: bool


class StepValues:
    """On a CPU the numbers of this step. On an accelerator those of the step before, which are there by then.

    Args:
        fail: raises the error for the step whose loss or gradient is not finite.

    Attributes:
        loss, gradient_norm: of the last step that was read; NaN before.
    """

    def __init__(self, fail: Callable[[int], NoReturn]) -> None:
        self.loss = self.gradient_norm = float("nan")
        self._fail = fail
        self._loss: Tensor | None = None
        self._copy: _Copy | None = None

    def take_loss(self, loss: Tensor, step: int) -> None:
        """Before the backward pass."""
        if read_at_once(loss):
            self._set_loss(float(loss.detach()), step)
        else:
            self._loss = loss.detach()

    def take_gradient_norm(self, norm: Tensor, step: int, *, strict: bool) -> None:
        """Before the optimizer's step. Not strict: an infinite gradient is no error (float16 skips the step)."""
        if self._loss is None:
            self._set_norm(float(norm), step, strict)
            return
        self.finish()
        both = torch.stack([self._loss.float(), norm.to(self._loss.device).float()])
        values, arrived = both, None
        if both.is_cuda:
            values = torch.empty(2, pin_memory=True).copy_(both, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        self._copy = _Copy(values, arrived, step, strict)

    def finish(self) -> None:
        """Wait for the values that are on their way: before a checkpoint is written, and before they are logged."""
        copy, self._copy = self._copy, None
        if copy is None:
            return
        if copy.arrived is not None:
            copy.arrived.synchronize()
        loss, norm = copy.values.tolist()
        self._set_loss(loss, copy.step)
        self._set_norm(norm, copy.step, copy.strict)

    def _set_loss(self, loss: float, step: int) -> None:
        self.loss = loss
        if not abs(loss) < float("inf"):
            self._fail(step)

    def _set_norm(self, norm: float, step: int, strict: bool) -> None:
        self.gradient_norm = norm
        if strict and not norm < float("inf"):
            self._fail(step)


def read_at_once(x: Tensor) -> bool:
    """Whether to read a value costs no waiting."""
    return x.device.type == "cpu"
