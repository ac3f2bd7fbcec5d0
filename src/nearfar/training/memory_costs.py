"""How much memory a training step takes: counted on a few rows, foretold for many.

Tensors of an encoder grow in proportion to the rows. So the bytes that are held after each operation are counted in two
small runs, and told for any number of rows by a line through both. A line for each operation, not for the largest
alone: with few rows the most is held where the gradients of wide heads are, with many where the activations are.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary


class LiveBytes(TorchDispatchMode):
    """Within it, the bytes of tensors that were made in it and still are, after each operation (`course`).

    What an operation needs inside itself is not seen.

    >>> with LiveBytes() as bytes_held:
    ...     x = torch.zeros(256)
    ...     y = x + 1
    ...     del x
    ...     z = y.view(2, 128).mul_(2)
    >>> max(bytes_held.course), bytes_held.course[-1]
    (2048, 1024)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.course: list[int] = []
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()  # storages, counted or here before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for x in tree_leaves((args, kwargs or {})):
            if isinstance(x, Tensor):
                self._known.setdefault(x.untyped_storage(), None)
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and (storage := x.untyped_storage()) not in self._known:
                self._known[storage] = None
                self.live += (size := storage.nbytes())
                weakref.finalize(storage, self._freed, size)
        self.course.append(self.live)
        return out

    def _freed(self, size: int) -> None:
        self.live -= size


@dataclass(frozen=True)
class LinearCost:
    """Bytes after each of several operations as `fixed + per_row · rows`."""

    fixed: Tensor  # (T,)
    per_row: Tensor  # (T,)

    def peak(self, rows: int) -> int:
        """The most that is held at a time."""
        return max(0, int((self.fixed + self.per_row * rows).amax())) if len(self.fixed) else 0

    def end(self, rows: int) -> int:
        """What is held after the last operation."""
        return max(0, int(self.fixed[-1] + self.per_row[-1] * rows)) if len(self.fixed) else 0


def line(few: int, at_few: list[int], more: int, at_more: list[int]) -> LinearCost:
    """Through two runs of the same operations; where they are not the same, through their peaks alone.

    >>> found = line(2, [10, 20], 4, [20, 30])
    >>> found.peak(8), found.end(8)
    (50, 50)
    """
    if len(at_few) != len(at_more):
        at_few, at_more = [max(at_few, default=0)], [max(at_more, default=0)]
    low, high = torch.tensor(at_few, dtype=torch.float64), torch.tensor(at_more, dtype=torch.float64)
    per_row = (high - low) / (more - few)
    return LinearCost(low - per_row * few, per_row)


def measured_line(work: Callable[[int], Callable[[], object]], few: int, more: int) -> LinearCost:
    """The line of `work(rows)()`; what `work` prepares before it is called again is not counted."""
    found = []
    for rows in (few, more):
        ready = work(rows)
        with LiveBytes() as held:
            ready()
        found.append(held.course)
    return line(few, found[0], more, found[1])


@dataclass(frozen=True)
class Costs:
    """Bytes of all that a training step needs, by what they grow with."""

    process: int  # interpreter, packages, data, weights, momentum networks, queue, bank
    gradients: int  # of the trained parameters
    optimizer: int  # its state
    sample: int  # a fetched sample
    forward: LinearCost  # encoding, with its graph; its end is what is held for the backward pass
    backward: LinearCost  # the same and on to the gradients of the parameters, which are counted in it
    encoded: int  # a row of what `contrast` gets
    contrast: LinearCost  # both ways, of rows that are counted in it
    views: LinearCost  # while they are made; its end is the views themselves
    viewed_in_parts: bool  # views are made for a micro-batch, not for the batch
    readout: int  # the look at validation samples
    workspace: int = 0  # what operations take inside themselves, for a row of a view

    def peak(
        self,
        batch: int,
        micro: int | None,
        *,
        accumulate: int = 1,
        tile_bytes: int = 0,
        processes: int = 1,
        ring: bool = False,
    ) -> "Peak":
        """The most that a process holds at a time.

        Args:
            batch: of all processes together.
            micro: samples in a part of a process' share; None: in one piece.
            processes: that share the batch. Each contrasts all rows, or by `ring` its own with one block after another.
        """
        own = -(-batch // processes)
        rows = own if micro is None else min(micro, own)
        viewed = rows if self.viewed_in_parts else own
        sent = self.gradients if processes > 1 else 0  # DDP's own copy of them
        contrast = self.contrast.peak(min(batch, 2 * own) if ring else batch) + tile_bytes
        step = self._step_peak(own, rows, contrast, accumulated=accumulate > 1)
        ahead = 1 if micro is not None else 2
        samples = (2 + ahead) * own * self.sample  # at work, waiting, and being fetched
        making = self.gradients + self.views.peak(viewed)
        largest = max(step + self.views.end(viewed), making, self.gradients + self.readout)
        return Peak(
            process=self.process,
            weights=self.gradients + sent + self.optimizer,
            samples=samples,
            views=self.views.end(viewed),
            embeddings=min(contrast, largest),
            activations=max(0, largest - self.gradients - self.views.end(viewed) - min(contrast, largest)),
            total=self.process + self.optimizer + sent + samples + largest,
        )

    def _step_peak(self, own: int, rows: int, contrast: int, *, accumulated: bool) -> int:
        """The most of encoding, contrasting and the backward pass, with the gradients that are held meanwhile.

        Args:
            own: samples of this process.
            rows: of them encoded at a time; fewer than `own`: gradients are cached.
            contrast: bytes that contrasting takes.
        """
        old = self.gradients  # of the step before, until the backward pass; or those that are accumulated
        again = self.gradients if accumulated else 0
        encoded, inside = self.encoded * own, self.workspace * rows
        forward, backward = self.forward.peak(rows) + inside, self.backward.peak(rows) + inside
        if rows < own:
            return max(old + forward + encoded, old + contrast, self.gradients + again + 2 * encoded + backward)
        return max(old + forward, old + self.forward.end(rows) + contrast - encoded, again + encoded + backward)


@dataclass(frozen=True)
class Peak:
    """Bytes at the moment when most are held."""

    process: int
    weights: int  # gradients and optimizer
    samples: int
    views: int
    embeddings: int  # what is contrasted
    activations: int  # and what else is held beside them
    total: int


@dataclass(frozen=True)
class MemoryPlan:
    """How to run a batch within a budget."""

    batch: int
    micro: int | None
    accumulate: int
    peak: Peak
    fits: bool


def choose(
    costs: Costs,
    budget: int,
    *,
    batch: int,
    accumulate: int = 1,
    micro: int | None = None,
    tile_bytes: int = 0,
    processes: int = 1,
    ring: bool = False,
) -> MemoryPlan:
    """The batch in one piece if that fits; else in the largest parts that do; else in several batches that do.

    Parts change nothing of the gradient; several batches have fewer negatives each. A tenth of the budget stays free.

    Args:
        budget: of each process.
        micro: given by the user, and kept.
        tile_bytes, processes, ring: as in `Costs.peak`.
    """
    plan = None
    for times in [2**n for n in range(batch.bit_length())]:
        rows = -(-batch // times)
        if rows < 4 * processes:
            break
        sizes: list[int | None] = [micro] if micro is not None else [None, *_powers(-(-rows // processes))]
        for size in sizes:
            peak = costs.peak(
                rows,
                size,
                accumulate=accumulate * times,
                tile_bytes=tile_bytes,
                processes=processes,
                ring=ring,
            )
            plan = MemoryPlan(rows, size, accumulate * times, peak, fits=peak.total <= 0.9 * budget)
            if plan.fits:
                return plan
    if plan is None:
        raise ValueError(
            f"a batch of {batch} on {processes} processes leaves fewer than 4 samples to each; raise --batch-size"
        )
    return plan


def _powers(below: int) -> list[int]:
    """Powers of two below a number, the largest first, down to 4."""
    return [2**n for n in range((below - 1).bit_length() - 1, 1, -1)]
