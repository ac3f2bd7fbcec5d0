"""A batch that several processes share: which rows are here, and collectives over the rows of all processes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from nearfar.losses.engine.gathered import note_gathered


@dataclass(frozen=True)
class Shard:
    """The rows of the global batch that this process has. The global batch is the processes' rows in rank order.

    Args:
        rank: of this process.
        sizes: rows of each process; they may differ, and may be 0.

    >>> shard = Shard(1, (3, 2))
    >>> shard.first, shard.count, shard.total, shard.select(torch.arange(5)).tolist()
    (3, 2, 5, [3, 4])
    """

    rank: int
    sizes: tuple[int, ...]

    @property
    def world_size(self) -> int:
        return len(self.sizes)

    @property
    def count(self) -> int:
        """Rows of this process."""
        return self.sizes[self.rank]

    @property
    def first(self) -> int:
        """Number of this process' first row in the global batch."""
        return sum(self.sizes[: self.rank])

    @property
    def total(self) -> int:
        """Rows of the global batch."""
        return sum(self.sizes)

    def select(self, x: Tensor, dim: int = 0) -> Tensor:
        """This process' rows of a tensor that has those of the global batch along `dim`; a view."""
        return x.narrow(dim, self.first, self.count)

    def gather(self, x: Tensor) -> Tensor:
        """Rows (count, ...) of each process to those of all (total, ...), in rank order; without a gradient.

        Processes may have different numbers of rows: shorter ones are padded to be sent, and cut again.
        """
        note_gathered()
        most = max(self.sizes)
        sent = x.detach()
        if len(sent) < most:
            sent = torch.cat([sent, sent.new_zeros(most - len(sent), *sent.shape[1:])])
        sent = sent.contiguous()
        as_sent = sent.view(torch.uint8) if sent.dtype == torch.bool else sent
        received = [torch.empty_like(as_sent) for _ in self.sizes]
        dist.all_gather(received, as_sent)
        return torch.cat([rows[:n] for rows, n in zip(received, self.sizes, strict=True)]).view(x.dtype)


_SHARD: ContextVar[Shard | None] = ContextVar("nearfar_shard", default=None)


def current_shard() -> Shard | None:
    """The shard that is being computed, or None where the rows are the global batch."""
    return _SHARD.get()


@contextmanager
def use_shard(shard: Shard) -> Iterator[None]:
    """Within this context the rows in work are those of a shard."""
    token = _SHARD.set(shard)
    try:
        yield
    finally:
        _SHARD.reset(token)


def global_rows(rows: int) -> int:
    """Rows of the global batch, given how many are here."""
    shard = current_shard()
    return rows if shard is None else shard.total


def is_distributed() -> bool:
    """Whether there are several processes, connected by `torch.distributed`."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def shard_of(rows: int, device: torch.device | str = "cpu") -> Shard:
    """The shard of a process with this many rows. A collective: every process must call it."""
    sizes = Shard(dist.get_rank(), (1,) * dist.get_world_size()).gather(torch.tensor([rows], device=device))
    return Shard(dist.get_rank(), tuple(sizes.tolist()))


def all_reduce_sum(x: Tensor) -> Tensor:
    """The sum over all processes; x is overwritten."""
    dist.all_reduce(x)
    return x


def all_reduce_max(number: int, device: torch.device | str = "cpu") -> int:
    """The largest of the processes' numbers."""
    found = torch.tensor([number], device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return int(found.item())


def local(x: Tensor) -> Tensor:
    """This process' part of a sharded tensor (FSDP), or the tensor itself."""
    part: Tensor = x.to_local() if is_sharded(x) else x  # type: ignore[attr-defined]
    return part


def is_sharded(x: Tensor) -> bool:
    """Whether x is a DTensor. Recognized by its method, because importing the class takes long."""
    return hasattr(x, "to_local")


@torch.no_grad()
def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """A scalar: the norm of all tensors together; of sharded tensors, that of all their parts."""
    parts, norms = [local(x) for x in tensors if is_sharded(x)], [x for x in tensors if not is_sharded(x)]
    norms = list(torch._foreach_norm(norms)) if norms else []
    if parts:
        norms.append(all_reduce_sum(torch.stack(torch._foreach_norm(parts)).square().sum()).sqrt())
    if len(norms) == 1:
        return norms[0]
    norm: Tensor = torch.stack(norms).norm() if norms else torch.tensor(0.0)
    return norm
