"""How blocks of rows and what was computed for them travel around a ring of processes."""

from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch import Tensor

from nearfar.nn.shard import Shard


def ring_blocks(shard: Shard, *own: Tensor, hops: int | None = None) -> Iterator[tuple[int, list[Tensor]]]:
    """The tensors of each process in turn, this one's first, with the rank of their owner.

    The next block is sent and received while the caller uses one.
    """
    block = [x.detach().contiguous() for x in own]
    hops = shard.world_size - 1 if hops is None else hops
    for hop in range(hops + 1):
        owner = (shard.rank + hop) % shard.world_size
        if hop == hops:
            yield owner, block
            return
        rows = _rows_on(shard, own[0], (owner + 1) % shard.world_size)
        received = [x.new_empty(rows, *x.shape[1:]) for x in own]
        works = _to_previous(shard, block, received, tag=0)
        yield owner, block
        for work in works:
            work.wait()
        block = received


def half_ring_blocks(shard: Shard, *own: Tensor) -> Iterator[tuple[int, tuple[slice, slice], list[Tensor]]]:
    """The blocks of other processes that this one computes: the hop, the rows and columns of the block, the tensors.

    Of the p - 1 other processes half are enough, since the others compute their blocks with this one. With an even
    number of processes, two that are half a ring apart have each other's block: the lower rank takes the first half of
    the other's rows, and the other the second.
    """
    everything = slice(None)
    for hop, (owner, block) in enumerate(ring_blocks(shard, *own, hops=shard.world_size // 2)):
        part = everything, everything
        if 2 * hop == shard.world_size:
            half = len(own[0]) // shard.count * shard.sizes[max(shard.rank, owner)] // 2
            part = (everything, slice(half)) if shard.rank < owner else (slice(half, None), everything)
        if hop:
            yield hop, part, block


class Returned:
    """What a process computed for the rows of another goes there directly, while the next block is computed."""

    def __init__(self, shard: Shard, own: Tensor) -> None:
        self.shard, self.own = shard, own
        self._works: list[Any] = []
        self._kept: tuple[Tensor, Tensor] | None = None  # sent and received, until both are done

    def exchange(self, hop: int, of_block: Tensor) -> list[Tensor]:
        """Send to the process `hop` further on, and receive from the one before; returns what came at the last call."""
        arrived = self.last()
        received = of_block.new_empty(len(self.own), *of_block.shape[1:])
        to, of = (self.shard.rank + hop) % self.shard.world_size, (self.shard.rank - hop) % self.shard.world_size
        self._kept = of_block, received
        self._works = _send_and_receive([of_block], [received], to=to, of=of, tag=8)
        return arrived

    def last(self) -> list[Tensor]:
        for work in self._works:
            work.wait()
        arrived = [] if self._kept is None else [self._kept[1]]
        self._works, self._kept = [], None
        return arrived


class RingSum:
    """A sum over processes for the keys of each process; it travels with the keys, and ends on their process.

    Args:
        keys: of this process; says how many rows others have.
        join: how two contributions are added.
    """

    def __init__(self, shard: Shard, keys: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.shard, self.keys, self.join = shard, keys, join
        self._received: Tensor | None = None
        self._works: list[Any] = []
        self._sent: Tensor | None = None  # kept until it was sent

    def add(self, owner: int, part: Tensor) -> None:
        """Add this process' contribution to the sum of the owner's keys, and send it on."""
        so_far = self._wait()
        total = part if so_far is None else self.join(so_far, part)
        if self.shard.world_size == 1:
            self._received = total
            return
        self._sent = total.contiguous()
        rows = _rows_on(self.shard, self.keys, (owner + 1) % self.shard.world_size)
        self._received = part.new_empty(rows, *part.shape[1:])
        self._works = _to_previous(self.shard, [self._sent], [self._received], tag=8)

    def result(self) -> Tensor:
        """The sum over all processes, for this process' keys."""
        found = self._wait()
        assert found is not None
        return found

    def _wait(self) -> Tensor | None:
        for work in self._works:
            work.wait()
        self._works = []
        return self._received


def _rows_on(shard: Shard, own: Tensor, owner: int) -> int:
    """Rows of a tensor on another process, given that of this one: the same number for each sample."""
    return len(own) // shard.count * shard.sizes[owner]


def _to_previous(shard: Shard, out: list[Tensor], into: list[Tensor], *, tag: int) -> list[Any]:
    """Start to send to the previous rank and to receive from the next; returns the works to wait for."""
    previous, following = (shard.rank - 1) % shard.world_size, (shard.rank + 1) % shard.world_size
    return _send_and_receive(out, into, to=previous, of=following, tag=tag)


def _send_and_receive(out: list[Tensor], into: list[Tensor], *, to: int, of: int, tag: int) -> list[Any]:
    operations = []
    for number, (sent, received) in enumerate(zip(out, into, strict=True)):
        operations.append(dist.P2POp(dist.isend, sent, to, tag=tag + number))
        operations.append(dist.P2POp(dist.irecv, received, of, tag=tag + number))
    works: list[Any] = dist.batch_isend_irecv(operations)
    return works
