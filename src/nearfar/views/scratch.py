"""Memory for temporaries, kept from chunk to chunk and from call to call."""

import math
import threading

import torch
from torch import Tensor


class Scratch:
    """Named buffers that are handed out again and again.

    A large tensor fresh from the system costs a page fault for every 4096 bytes, which is more than the arithmetic on
    it; a buffer that was just used is still in the cache.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A contiguous tensor of this shape, with the type and device of `like`; what it holds is left over."""
        last = self._last.get(name)
        if last is not None and last.shape == shape and last.dtype == like.dtype and last.device == like.device:
            return last
        count = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < count or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._buffers[name] = torch.empty(count, dtype=like.dtype, device=like.device)
        self._last[name] = buffer[:count].view(shape)
        return self._last[name]


_of_thread = threading.local()


def scratch_for(images: Tensor) -> Scratch:
    """On the CPU the thread's own, kept for good: a few chunks' worth. Elsewhere a fresh one, torch caches there."""
    if images.device.type != "cpu":
        return Scratch()
    if not hasattr(_of_thread, "scratch"):
        _of_thread.scratch = Scratch()
    kept: Scratch = _of_thread.scratch
    return kept
