"""Learned temperatures and logit scales that stay positive and within bounds."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.losses.arguments import check_positive


class _Positive(nn.Module):
    """A learned number above zero, stored as its logarithm and kept within [low, high].

    At a bound, a gradient that points outside is dropped; one that points inside is kept.
    """

    def __init__(self, initial: float, *, low: float = 0.01, high: float = 100.0) -> None:
        super().__init__()
        for name, value in (("initial", initial), ("low", low), ("high", high)):
            check_positive(name, value)
        if not low <= initial <= high:
            raise ValueError(f"initial is {initial:g}, expected a number from low={low:g} to high={high:g}")
        self.low, self.high = low, high
        self._bounds = _log_within(low, upward=True), _log_within(high, upward=False)
        self.log = nn.Parameter(torch.tensor(math.log(initial)).clamp(*self._bounds))

    def forward(self) -> Tensor:
        low, high = self._bounds
        on_host = self.log.device.type == "cpu"  # an accelerator is not asked
        if not on_host or not low <= float(self.log.detach()) <= high:  # the optimizer's momentum moved it outside
            with torch.no_grad():
                self.log.clamp_(low, high)
        bounded: Tensor = _Bounded.apply(self.log, low, high)  # type: ignore[no-untyped-call]
        return bounded.exp()

    def extra_repr(self) -> str:
        return f"{self.log.detach().exp().item():.4g}, low={self.low:g}, high={self.high:g}"


class LogTemperature(_Positive):
    """A learned temperature, never below `low`; call it for the value.

    >>> temperature = LogTemperature(0.07)
    >>> round(temperature().item(), 4)
    0.07
    """


class LogitScale(_Positive):
    """A learned factor of the logits, CLIP's: starts at 1 / 0.07 and never exceeds 100; call it for the value.

    Reference: Radford et al. 2021, section 2.5, https://arxiv.org/abs/2103.00020

    >>> round(LogitScale()().item(), 2)
    14.29
    """

    def __init__(self, initial: float = 1 / 0.07, *, low: float = 0.01, high: float = 100.0) -> None:
        super().__init__(initial, low=low, high=high)


def _log_within(bound: float, *, upward: bool) -> float:
    """The float32 nearest to log(bound) whose exponential does not pass the bound."""
    log = torch.tensor(math.log(bound))
    away = torch.tensor(math.inf if upward else -math.inf)
    while (float(log.exp()) < bound) if upward else (float(log.exp()) > bound):
        log = torch.nextafter(log, away)
    return float(log)


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        # not x itself: it may be moved back to its bound before the backward pass
        ctx.save_for_backward(x >= high, x <= low)
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        at_high, at_low = ctx.saved_tensors
        outward = (at_high & (grad < 0)) | (at_low & (grad > 0))  # gradient descent moves against the gradient
        return grad.masked_fill(outward, 0.0), None, None
