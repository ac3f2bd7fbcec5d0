"""Ring backend: each process keeps its rows, and the keys of all processes pass by, one block at a time.

No process holds more than its own rows, one block and the next block, so memory is linear in the local batch. Each
process computes the sums of its own queries only, so the work is shared, too. The next block is sent while one is used.
In the backward pass the keys go around once more, together with their gradients, which end on the keys' process.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nearfar.losses.engine.backends import Ids, are_of_one_batch, require_all_rows
from nearfar.losses.engine.guide import Guide
from nearfar.losses.engine.similarity import block_log_sum_gradients, block_log_sums
from nearfar.losses.engine.softplus_sums import block_softplus_gradients, block_softplus_sums
from nearfar.losses.engine.tiles import Grid
from nearfar.nn.shard import Shard, all_reduce_sum


class RingBackend:
    """Sums over the rows of all processes, for losses whose keys are the rows of the batch.

    Within `use_backend(RingBackend(shard))` a loss takes the rows of this process, with ids that are unique over all
    processes, and returns the losses of these rows, each against the keys of all. `global_mean` averages them.
    """

    distributed = True

    def __init__(self, shard: Shard) -> None:
        if min(shard.sizes) == 0:
            raise ValueError(
                f"process {shard.sizes.index(0)} has no rows; raise the batch size or set gather to 'gather'"
            )
        self.shard = shard

    def logsumexp(
        self,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        query_ids: Ids,
        key_ids: Ids,
        two_way: bool,
        guide: Guide | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        if guide is not None:
            require_all_rows("a guide")
        ids = self._check_ids(query_ids, key_ids)
        rows, columns = _LogSumExp.apply(query, keys, scale, *ids, two_way, self.shard)  # type: ignore[no-untyped-call]
        return rows, columns if two_way else None

    def softplus_sum(
        self, query: Tensor, keys: Tensor, scale: Tensor, bias: Tensor, query_ids: Ids, key_ids: Ids
    ) -> Tensor:
        ids, _ = self._check_ids(query_ids, key_ids if key_ids is query_ids else None)
        total: Tensor = _SoftplusSum.apply(query, keys, scale, bias, ids, self.shard)  # type: ignore[no-untyped-call]
        return total

    def _check_ids(self, query_ids: Ids, key_ids: Ids) -> tuple[Tensor, Tensor]:
        known = query_ids is not None and key_ids is not None and are_of_one_batch(query_ids, key_ids)
        if query_ids is None or key_ids is None or not known or len(key_ids) % self.shard.count:
            raise ValueError(
                "a ring needs keys that are the rows of the batch, with the same ids as the queries; these are not (a "
                "queue, a bank, given negatives); set gather"
            )
        return query_ids, key_ids


def global_mean(loss: Tensor, shard: Shard) -> Tensor:
    """The mean over the rows of all processes, given the mean over the rows of each; differentiable.

    All processes get the same value. The gradient of a process is that of its own rows' contribution, times the number
    of processes, since trainers average over processes. This is right for the parameters of the loss, too.
    """
    mean: Tensor = _GlobalMean.apply(loss, shard)  # type: ignore[no-untyped-call]
    return mean


class _GlobalMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return all_reduce_sum(loss * (shard.count / shard.total))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        shard: Shard = ctx.shard
        return grad * (shard.count * shard.world_size / shard.total), None


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        ids: Tensor,
        key_ids: Tensor,
        two_way: bool,
        shard: Shard,
    ) -> tuple[Tensor, Tensor]:
        rows = query.new_full((len(query),), -torch.inf)
        of_keys = _RingSum(shard, keys, torch.logaddexp)
        for owner, (block, block_ids) in _ring_blocks(shard, keys, key_ids):
            block_rows, block_columns = block_log_sums(query, block, scale, ids, block_ids, two_way)
            rows = rows.logaddexp(block_rows)
            if block_columns is not None:
                of_keys.add(owner, block_columns)
        columns = of_keys.result() if two_way else keys.new_empty(0)
        ctx.save_for_backward(query, keys, scale, ids, key_ids, rows, columns)
        ctx.two_way, ctx.shard = two_way, shard
        ctx.set_materialize_grads(False)
        return rows, columns

    @staticmethod
    def backward(ctx: Any, grad_rows: Tensor | None, grad_columns: Tensor | None) -> tuple[Tensor | None, ...]:
        query, keys, scale, ids, key_ids, rows, columns = ctx.saved_tensors
        row_side = torch.zeros_like(rows) if grad_rows is None else grad_rows, rows
        sent = [keys, key_ids]
        if ctx.two_way:
            sent += [torch.zeros_like(columns) if grad_columns is None else grad_columns, columns]
        grad_query, grad_keys = torch.zeros_like(query), _RingSum(ctx.shard, keys, torch.add)
        for owner, (block, block_ids, *side) in _ring_blocks(ctx.shard, *sent):
            column_side = (side[0], side[1]) if side else None
            of_query, of_block = block_log_sum_gradients(query, block, scale, ids, block_ids, row_side, column_side)
            grad_query += of_query
            grad_keys.add(owner, of_block)
        return grad_query * scale, grad_keys.result() * scale, (query * grad_query).sum(), None, None, None, None


class _SoftplusSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, scale: Tensor, bias: Tensor, ids: Tensor, shard: Shard
    ) -> Tensor:
        total = query.new_zeros(len(query))
        for _, (block, block_ids) in _ring_blocks(shard, keys, ids):
            grid = Grid(len(query), len(block), ids, block_ids, like=query)
            total += block_softplus_sums(query, block, scale, bias, grid)
        ctx.save_for_backward(query, keys, scale, bias, ids)
        ctx.shard = shard
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, scale, bias, ids = ctx.saved_tensors
        grad_query, grad_bias = torch.zeros_like(query), torch.zeros_like(bias)
        grad_keys = _RingSum(ctx.shard, keys, torch.add)
        for owner, (block, block_ids) in _ring_blocks(ctx.shard, keys, ids):
            grid = Grid(len(query), len(block), ids, block_ids, like=query)
            of_query, of_block, of_bias = block_softplus_gradients(query, block, scale, bias, grad, grid)
            assert of_block is not None
            grad_query += of_query
            grad_bias += of_bias
            grad_keys.add(owner, of_block)
        return grad_query * scale, grad_keys.result() * scale, (query * grad_query).sum(), grad_bias, None, None


def _ring_blocks(shard: Shard, *own: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
    """The tensors of each process in turn, this one's first, with the rank of their owner.

    The next block is sent and received while the caller uses one.
    """
    block = [x.detach().contiguous() for x in own]
    for hop in range(shard.world_size):
        owner = (shard.rank + hop) % shard.world_size
        if hop == shard.world_size - 1:
            yield owner, block
            return
        rows = _rows_on(shard, own[0], (owner + 1) % shard.world_size)
        received = [x.new_empty(rows, *x.shape[1:]) for x in own]
        works = _send_and_receive(shard, block, received, tag=0)
        yield owner, block
        for work in works:
            work.wait()
        block = received


class _RingSum:
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
        self._works = _send_and_receive(self.shard, [self._sent], [self._received], tag=8)

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


def _send_and_receive(shard: Shard, out: list[Tensor], into: list[Tensor], *, tag: int) -> list[Any]:
    """Start to send to the previous rank and to receive from the next; returns the works to wait for."""
    previous, following = (shard.rank - 1) % shard.world_size, (shard.rank + 1) % shard.world_size
    operations = []
    for number, (sent, received) in enumerate(zip(out, into, strict=True)):
        operations.append(dist.P2POp(dist.isend, sent, previous, tag=tag + number))
        operations.append(dist.P2POp(dist.irecv, received, following, tag=tag + number))
    works: list[Any] = dist.batch_isend_irecv(operations)
    return works
