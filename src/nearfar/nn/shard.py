"""A batch that several processes share: who has which of its rows, and the sums over all of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Share:
    """The rows of the whole batch that this process has: the whole is the processes' rows in the order of their ranks.

    Args:
        rank: of this process.
        sizes: rows of each process; they may differ, and may be 0.

    >>> share = Share(1, (3, 2))
    >>> share.first, share.count, share.total, share.own(torch.arange(5)).tolist()
    (3, 2, 5, [3, 4])
    """

    rank: int
    sizes: tuple[int, ...]

    @property
    def world(self) -> int:
        """How many processes there are."""
        return len(self.sizes)

    @property
    def count(self) -> int:
        return self.sizes[self.rank]

    @property
    def first(self) -> int:
        return sum(self.sizes[: self.rank])

    @property
    def total(self) -> int:
        return sum(self.sizes)

    def own(self, x: Tensor) -> Tensor:
        """Of the rows of all (total, ...) those of this process (count, ...)."""
        return x[self.first : self.first + self.count]


_SHARE: ContextVar[Share | None] = ContextVar("nearfar_share", default=None)


def current() -> Share | None:
    """The share that the rows in work are, or None where they are the whole batch."""
    return _SHARE.get()


@contextmanager
def rows_are(share: Share) -> Iterator[None]:
    """Within this context rows are those of a share."""
    token = _SHARE.set(share)
    try:
        yield
    finally:
        _SHARE.reset(token)


def whole(rows: int) -> int:
    """How many rows all processes have together, where this one has so many."""
    share = current()
    return rows if share is None else share.total


def share_of(rows: int, device: torch.device | str = "cpu") -> Share:
    """The share of a process that has so many rows: all tell each other."""
    found = torch.tensor([rows], device=device)
    each = [torch.zeros_like(found) for _ in range(dist.get_world_size())]
    dist.all_gather(each, found)
    return Share(dist.get_rank(), tuple(int(n) for n in torch.cat(each)))


def rows_of_all(x: Tensor, share: Share) -> Tensor:
    """The rows (count, ...) of each process as (total, ...), in the order of ranks; without a gradient.

    Sizes may differ: what is sent is as long as the longest, and is cut after.
    """
    most = max(share.sizes)
    sent = x.detach()
    if len(sent) < most:
        sent = torch.cat([sent, sent.new_zeros(most - len(sent), *sent.shape[1:])])
    sent = sent.contiguous()
    as_sent = sent.view(torch.uint8) if sent.dtype == torch.bool else sent
    each = [torch.empty_like(as_sent) for _ in share.sizes]
    dist.all_gather(each, as_sent)
    return torch.cat([e[:n] for e, n in zip(each, share.sizes, strict=True)]).view(x.dtype)


def sum_of_all(x: Tensor) -> Tensor:
    """The sum over all processes; x is written over."""
    dist.all_reduce(x)
    return x


def most_of_all(number: int, device: torch.device | str = "cpu") -> int:
    """The largest of the processes' numbers."""
    found = torch.tensor([number], device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return int(found.item())


def local(x: Tensor) -> Tensor:
    """What this process has of a tensor: its part, where processes hold the parts of it (FSDP's), else all of it."""
    part: Tensor = x.to_local() if is_cut(x) else x  # type: ignore[attr-defined]
    return part


def is_cut(x: Tensor) -> bool:
    """Whether processes hold the parts of a tensor. Told by its method, since torch's class takes long to import."""
    return hasattr(x, "to_local")


@torch.no_grad()
def norm_of_whole(tensors: Sequence[Tensor]) -> Tensor:
    """A scalar: the norm of all of them together, of the whole ones where processes hold the parts."""
    parts, norms = [local(x) for x in tensors if is_cut(x)], [x for x in tensors if not is_cut(x)]
    norms = list(torch._foreach_norm(norms)) if norms else []
    if parts:
        norms.append(sum_of_all(torch.stack(torch._foreach_norm(parts)).square().sum()).sqrt())
    if len(norms) == 1:
        return norms[0]
    norm: Tensor = torch.stack(norms).norm() if norms else torch.tensor(0.0)
    return norm
