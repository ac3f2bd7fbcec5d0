"""Counters in buffers that are known on the host, too: to read one from an accelerator would be to wait for it."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class HostNumbers(nn.Module):
    """A module whose `host_numbers`, buffers of one number each, are read without waiting for their device.

    They are in the state dict as any buffer. One that somebody else changed, by loading a state, is read again.
    """

    host_numbers: ClassVar[tuple[str, ...]] = ()

    def number(self, name: str) -> float:
        """The value of a buffer."""
        buffer = self._buffers[name]
        assert buffer is not None
        known = self._known_numbers().get(name)
        if known is None or known[0] is not buffer or known[1] != _version(buffer):
            return self._remember(name, buffer.item())
        return known[2]

    def set_number(self, name: str, value: float) -> None:
        buffer = self._buffers[name]
        assert buffer is not None
        buffer.fill_(value)
        self._remember(name, value)

    def _remember(self, name: str, value: float) -> float:
        buffer = self._buffers[name]
        assert buffer is not None
        value = torch.tensor(value, dtype=buffer.dtype).item()  # as rounded as the buffer is
        self._known_numbers()[name] = buffer, _version(buffer), value
        return value

    def _known_numbers(self) -> dict[str, tuple[Tensor, int, float]]:
        known: dict[str, tuple[Tensor, int, float]] = self.__dict__.setdefault("_numbers_on_host", {})
        return known

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """To another device or type: the numbers are the same there."""
        known = self._known_numbers()
        buffers = {name: self._buffers[name] for name in self.host_numbers}
        values = {
            name: self.number(name) for name, x in buffers.items() if x is not None and (name in known or not x.is_meta)
        }
        moved = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in values.items():
            self._remember(name, value)
        return moved


def _version(buffer: Tensor) -> int:
    """How often it was changed in place; below 0, and so never as it was, where torch does not count."""
    return -1 if buffer.is_inference() else buffer._version
