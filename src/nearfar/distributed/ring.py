"""Keys that travel: each process keeps its rows, and the keys of all pass by it, one block at a time.

No process ever holds more than its own rows, a block and the block that comes next, so memory is linear in the local
batch; and each computes the sums of its own queries alone, so that the work is shared, too. While a block is worked on,
the next is on its way. In the backward pass the keys go round once more, with their gradients, which so come home.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nearfar.losses.engine.similarity import block_log_sum_gradients, block_log_sums
from nearfar.losses.engine.tiles import Grid
from nearfar.losses.sigmoid import block_softplus_gradients, block_softplus_sums
from nearfar.nn.shard import Share, sum_of_all


class Ring:
    """The backend of the losses over the rows of all processes, for losses within the batch.

    Within `sums_by(Ring(share))` a loss gets the rows of this process, with ids that hold for all, and gives the losses
    of these rows, each against the keys of all processes. `mean_of_all` makes of them the loss of the batch.
    """

    elsewhere = True

    def __init__(self, share: Share) -> None:
        if min(share.sizes) == 0:
            raise ValueError(
                f"process {share.sizes.index(0)} has no rows, and a ring needs some on each; raise the batch size to "
                f"{share.world} or more, or set gather"
            )
        self.share = share

    def log_sums(
        self,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        query_ids: Tensor | None,
        key_ids: Tensor | None,
        two_way: bool,
    ) -> tuple[Tensor, Tensor | None]:
        ids = self._ids(query, keys, query_ids, key_ids)
        rows, columns = _LogSums.apply(query, keys, scale, ids, two_way, self.share)  # type: ignore[no-untyped-call]
        return rows, columns if two_way else None

    def softplus_sums(
        self,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        bias: Tensor,
        query_ids: Tensor | None,
        key_ids: Tensor | None,
    ) -> Tensor:
        ids = self._ids(query, keys, query_ids, key_ids)
        total: Tensor = _SoftplusSums.apply(query, keys, scale, bias, ids, self.share)  # type: ignore[no-untyped-call]
        return total

    def _ids(self, query: Tensor, keys: Tensor, query_ids: Tensor | None, key_ids: Tensor | None) -> Tensor:
        if query_ids is None or key_ids is not query_ids or len(keys) % self.share.count:
            raise ValueError(
                "a ring serves losses within the batch, whose keys are the batch's own rows with the ids of the "
                "queries, and these keys are others (a queue, a bank, given negatives); set gather"
            )
        return query_ids


def mean_of_all(loss: Tensor, share: Share) -> Tensor:
    """The mean over the rows of all processes, of the mean over the rows of each; with its gradient.

    The value is the same on all. The gradient of a process is that of its own rows' part, times the number of
    processes, which trainers divide by; so it is for every parameter, also those of the loss.
    """
    mean: Tensor = _MeanOfAll.apply(loss, share)  # type: ignore[no-untyped-call]
    return mean


class _MeanOfAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, share: Share) -> Tensor:
        ctx.share = share
        return sum_of_all(loss * (share.count / share.total))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        share: Share = ctx.share
        return grad * (share.count * share.world / share.total), None


class _LogSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, scale: Tensor, ids: Tensor, two_way: bool, share: Share
    ) -> tuple[Tensor, Tensor]:
        rows = query.new_full((len(query),), -torch.inf)
        home = _Home(share, keys)
        for owner, (block, block_ids) in _around(share, keys, ids):
            of_rows, of_columns = block_log_sums(query, block, scale, ids, block_ids, two_way)
            rows = rows.logaddexp(of_rows)
            if of_columns is not None:
                home.take_along(owner, of_columns, torch.logaddexp)
        columns = home.come() if two_way else keys.new_empty(0)
        ctx.save_for_backward(query, keys, scale, ids, rows, columns)
        ctx.two_way, ctx.share = two_way, share
        ctx.set_materialize_grads(False)
        return rows, columns

    @staticmethod
    def backward(ctx: Any, grad_rows: Tensor | None, grad_columns: Tensor | None) -> tuple[Tensor | None, ...]:
        query, keys, scale, ids, rows, columns = ctx.saved_tensors
        share: Share = ctx.share
        a = torch.zeros_like(rows) if grad_rows is None else grad_rows
        travelling = [keys, ids]
        if ctx.two_way:
            travelling += [torch.zeros_like(columns) if grad_columns is None else grad_columns, columns]
        for_query, home = torch.zeros_like(query), _Home(share, keys)
        for owner, (block, block_ids, *side) in _around(share, *travelling):
            column_side = (side[0], side[1]) if side else None
            of_query, of_keys = block_log_sum_gradients(query, block, scale, ids, block_ids, (a, rows), column_side)
            for_query += of_query
            home.take_along(owner, of_keys, torch.add)
        grad_scale = (query * for_query).sum()
        return for_query * scale, home.come() * scale, grad_scale, None, None, None


class _SoftplusSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, scale: Tensor, bias: Tensor, ids: Tensor, share: Share
    ) -> Tensor:
        total = query.new_zeros(len(query))
        for _, (block, block_ids) in _around(share, keys, ids):
            total += block_softplus_sums(query, block, scale, bias, _grid(query, block, ids, block_ids))
        ctx.save_for_backward(query, keys, scale, bias, ids)
        ctx.share = share
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, scale, bias, ids = ctx.saved_tensors
        share: Share = ctx.share
        for_query, for_bias = torch.zeros_like(query), torch.zeros_like(bias)
        home = _Home(share, keys)
        for owner, (block, block_ids) in _around(share, keys, ids):
            grid = _grid(query, block, ids, block_ids)
            of_query, of_keys, of_bias = block_softplus_gradients(query, block, scale, bias, grad, grid)
            assert of_keys is not None
            for_query += of_query
            for_bias += of_bias
            home.take_along(owner, of_keys, torch.add)
        grad_scale = (query * for_query).sum()
        return for_query * scale, home.come() * scale, grad_scale, for_bias, None, None


def _grid(query: Tensor, keys: Tensor, query_ids: Tensor, key_ids: Tensor) -> Grid:
    return Grid(len(query), len(keys), query_ids, key_ids, like=query)


def _around(share: Share, *own: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
    """The rows of each process in turn, one's own first: (whose they are, the tensors).

    While the caller works on one block, the next is on its way.
    """
    here = [x.detach().contiguous() for x in own]
    for hop in range(share.world):
        owner = (share.rank + hop) % share.world
        if hop == share.world - 1:
            yield owner, here
            return
        following = (owner + 1) % share.world
        coming = [x.new_empty(_rows(share, own[0], following), *x.shape[1:]) for x in own]
        under_way = _pass_on(share, here, coming, tag=0)
        yield owner, here
        for work in under_way:
            work.wait()
        here = coming


class _Home:
    """What belongs to the keys of each process, and is gathered along the ring until it is home again.

    Args:
        keys: one's own, whose number of rows says that of others.
    """

    def __init__(self, share: Share, keys: Tensor) -> None:
        self.share, self.keys = share, keys
        self._coming: Tensor | None = None
        self._under_way: list[Any] = []
        self._sent: Tensor | None = None  # kept until it has left

    def take_along(self, owner: int, part: Tensor, join: Any) -> None:
        """Add this process' part of what belongs to the owner's keys, and pass it on."""
        before = self._arrived()
        whole = part if before is None else join(before, part)
        if self.share.world == 1:
            self._coming = whole
            return
        following = (owner + 1) % self.share.world
        self._sent = whole.contiguous()
        self._coming = part.new_empty(_rows(self.share, self.keys, following), *part.shape[1:])
        self._under_way = _pass_on(self.share, [self._sent], [self._coming], tag=8)

    def come(self) -> Tensor:
        """What all processes found for one's own keys."""
        found = self._arrived()
        assert found is not None
        return found

    def _arrived(self) -> Tensor | None:
        for work in self._under_way:
            work.wait()
        self._under_way = []
        return self._coming


def _rows(share: Share, own: Tensor, owner: int) -> int:
    """How many rows a process has, of a tensor of which this one has as many: of each sample the same number."""
    return len(own) // share.count * share.sizes[owner]


def _pass_on(share: Share, out: list[Tensor], into: list[Tensor], *, tag: int) -> list[Any]:
    """Send to the process before, receive from the one after; the works to wait for."""
    before, after = (share.rank - 1) % share.world, (share.rank + 1) % share.world
    operations = []
    for number, (sent, received) in enumerate(zip(out, into, strict=True)):
        operations.append(dist.P2POp(dist.isend, sent, before, tag=tag + number))
        operations.append(dist.P2POp(dist.irecv, received, after, tag=tag + number))
    works: list[Any] = dist.batch_isend_irecv(operations)
    return works
