"""Buffers for temporaries, reused from chunk to chunk and from call to call; and a context with one thread."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Scratch:
    """Named buffers that are reused.

    A new large tensor costs a page fault for every 4096 bytes, more than the arithmetic on it; a buffer that was just
    used is still in the cache.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[object, ...], Tensor] = {}
        self._views: dict[tuple[object, ...], dict[tuple[int, ...], Tensor]] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A contiguous tensor of this shape, with the type and device of `like`; its content is arbitrary."""
        key = (name, like.dtype, like.device)
        views = self._views.setdefault(key, {})
        view = views.get(shape)
        if view is None:
            count = math.prod(shape)
            if key not in self._buffers or len(self._buffers[key]) < count:
                with torch.inference_mode(False):  # else nobody outside of inference mode could write into it later
                    self._buffers[key] = torch.empty(count, dtype=like.dtype, device=like.device)
                views.clear()
            view = views[shape] = self._buffers[key][:count].view(shape)
        return view


_of_thread = threading.local()


def scratch_for(images: Tensor) -> Scratch:
    """On the CPU one per thread, kept for the size of a few chunks. On a GPU a new one: torch caches memory there."""
    if images.device.type != "cpu":
        return Scratch()
    if not hasattr(_of_thread, "scratch"):
        _of_thread.scratch = Scratch()
    kept: Scratch = _of_thread.scratch
    return kept


@contextmanager
def single_thread(images: Tensor) -> Iterator[None]:
    """On the CPU, use one thread within this context.

    A chunk is so small that starting other threads takes longer than their work: on two cores, while a network trains,
    views take less than half the time.
    """
    threads = torch.get_num_threads()
    if images.device.type != "cpu" or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
