"""The order in which samples are seen, as a pure function of (seed, epoch)."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearfar.data.dataset import Dataset

ALL_FAILED = 8  # samples of a batch, from which it is no chance that none can be read


class FetchedBatch(NamedTuple):
    """One step's samples: `x` is (B, 3, S, S) uint8, the images of `indices` (B,)."""

    step: int
    indices: Tensor
    x: Tensor


class Loader:
    """Batches of sample numbers; every sample once an epoch, in an order drawn from (seed, epoch).

    The order depends on nothing else, so a run resumed at any step of any epoch sees what it would have seen.

    Args:
        n: number of samples.
        batch_size: samples a step, over all processes.
        seed: with the epoch, decides the order.
        drop_last: leave out the last batch of an epoch where it is short.
        parts: (n,) the shard that each sample is in, where these are to be read one after the other; see `by_parts`.
        window: with parts, places that a sample may move.

    >>> loader = Loader(10, 4, seed=0)
    >>> whole = [indices.tolist() for _, indices in loader.batches(epoch=3)]
    >>> resumed = [indices.tolist() for _, indices in loader.batches(epoch=3, start=1)]
    >>> len(loader), whole[1:] == resumed
    (2, True)
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        seed: int,
        drop_last: bool = True,
        *,
        parts: Tensor | None = None,
        window: int = 10_000,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected at least 1")
        if n < (batch_size if drop_last else 1):
            raise ValueError(
                f"{n} samples do not fill one batch of {batch_size}; lower it with --batch-size, or give more data"
            )
        if seed < 0:
            raise ValueError(f"seed is {seed}, expected at least 0")
        if parts is not None and parts.shape != (n,):
            raise ValueError(f"parts have shape {tuple(parts.shape)}, expected ({n},): one for each sample")
        self.n, self.batch_size, self.seed, self.drop_last = n, batch_size, seed, drop_last
        self.parts, self.window = parts, window

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self.n // self.batch_size if self.drop_last else -(-self.n // self.batch_size)

    def order(self, epoch: int) -> Tensor:
        """(n,) int64, the sample numbers in the order of the epoch."""
        # SeedSequence mixes the two well; seed + epoch would give one run's epochs to the next run.
        mixed = int(np.random.SeedSequence((self.seed, epoch)).generate_state(1, np.uint64)[0] >> 1)
        generator = torch.Generator().manual_seed(mixed)
        if self.parts is None:
            return torch.randperm(self.n, generator=generator)
        return by_parts(self.parts, self.window, generator)

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[int, Tensor]]:
        """(step within the epoch, its (B,) sample numbers), from step `start` on."""
        order = self.order(epoch)
        for step in range(start, len(self)):
            yield step, order[step * self.batch_size : (step + 1) * self.batch_size]

    def fetched(
        self,
        data: Dataset,
        epoch: int,
        start: int = 0,
        *,
        rank: int = 0,
        world: int = 1,
        worker: int = 0,
        workers: int = 1,
        ahead: int = 2,
        pin: bool = False,
    ) -> Iterator[FetchedBatch]:
        """The batches with their images, fetched in a background thread while the step before is computed.

        Args:
            data: where sample numbers are looked up.
            epoch, start: as in `batches`.
            rank, world: this process and how many there are; each takes its slice of the same global batch, equal
                slices where they can be.
            worker, workers: of this process, where several load; each takes every so many of its batches.
            ahead: how many batches may wait in memory.
            pin: into page-locked memory, from which a GPU copies while the host goes on.
        """
        if not 0 <= worker < workers:
            raise ValueError(f"worker is {worker}, expected from 0 to below the {workers} that there are")
        if len(data) != self.n:
            raise ValueError(f"the data has {len(data)} samples, but this loader orders {self.n}")
        if not 0 <= rank < world:
            raise ValueError(f"rank is {rank} of {world} processes, expected from 0 to {world - 1}")

        def fetch(step: int, indices: Tensor) -> FetchedBatch:
            mine = indices.tensor_split(world)[rank]
            samples = data.fetch(mine)
            failed = data.failed(mine)  # what cannot be read is an even gray
            if len(failed) == len(mine) >= ALL_FAILED:
                first = next(iter(failed.values()))
                raise ValueError(
                    f"none of the {len(mine)} samples of a step can be read, such as {first.path} ({first.reason}): "
                    "have the data moved or gone?"
                )
            return FetchedBatch(step, mine, samples.pin_memory() if pin else samples)

        waiting: deque[Future[FetchedBatch]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="fetch") as thread:
            try:
                for step, indices in self.batches(epoch, start):
                    if step % workers != worker:
                        continue
                    waiting.append(thread.submit(fetch, step, indices))
                    if len(waiting) > ahead:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def by_parts(parts: Tensor, window: int, generator: torch.Generator) -> Tensor:
    """(n,) an order that reads shards one after the other, and yet is shuffled.

    The shards come in a random order, and no sample is `window` or more places from where it would come then: what a
    buffer of that size would do, but that it is known beforehand and holds nothing in memory.

    Args:
        parts: (n,) the shard of each sample.

    >>> parts = torch.tensor([0, 0, 0, 1, 1, 1])
    >>> by_parts(parts, 0, torch.Generator().manual_seed(0)).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    turn = torch.randperm(int(parts.max()) + 1, generator=generator)  # (P,) when each shard comes
    read = torch.argsort(turn[parts.long()], stable=True)  # (n,)
    moved = torch.rand(len(parts), generator=generator, dtype=torch.float64) * window
    return read[torch.argsort(torch.arange(len(parts)) + moved, stable=True)]
