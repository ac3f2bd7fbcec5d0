"""Ring backend: each process keeps its rows, and the keys of all processes pass by, one block at a time.

No process holds more than its own rows, one block and the next block, so memory is linear in the local batch. Each
process computes the sums of its own queries only, so the work is shared, too. The next block is sent while one is used.
In the backward pass the keys go around once more, together with their gradients, which end on the keys' process.
Where queries and keys are the same rows (NT-Xent), blocks go half of the way: each pair of processes is computed by one
of the two, which sends the other its sums. So p processes take the p-th part of the time of one.
"""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from nearfar.distributed.ring_blocks import Returned, RingSum, half_ring_blocks, ring_blocks
from nearfar.losses.engine.backends import Ids, are_of_one_batch, require_all_rows, use_backend
from nearfar.losses.engine.guide import Guide
from nearfar.losses.engine.similarity import block_log_sum_gradients, block_log_sums
from nearfar.losses.engine.softplus_sums import block_softplus_gradients, block_softplus_sums
from nearfar.losses.engine.tiles import Grid
from nearfar.nn.shard import Shard, all_reduce_sum, is_distributed, shard_of


def ring(
    loss: Callable[..., Tensor],
    *rows: Any,
    ids: Tensor | None = None,
    shard: Shard | None = None,
    **options: Any,
) -> Tensor:
    """`loss(*rows, ids=ids, **options)` over the rows of all processes, of which each holds its own.

    For a training loop of your own under DDP, FSDP or another trainer that averages gradients over processes: value and
    gradient are those of one process with the full batch. Memory is that of the own rows, and work is divided. A
    collective: every process must call it. Without `torch.distributed` it is the loss itself.

    Args:
        loss: `nt_xent`, `nt_xent_views`, `info_nce` and `symmetric_info_nce`, `decoupled` or `sigmoid_pairs`: a mean
            over rows of sums over the batch. Others raise an error; give them gathered rows (`gather_rows`).
        rows: the loss's tensors of this process, (B, ...) or lists of these.
        ids: (B,), unique over all processes, but equal where rows are never negatives of each other. None: each sample
            its own.
        shard: `shard_of(B, device)`, to share it between calls.
        options: of the loss; `reduction` is "mean".

    >>> from nearfar.losses import nt_xent
    >>> z = torch.eye(4)  # one process
    >>> ring(nt_xent, z, z, temperature=0.5).equal(nt_xent(z, z, temperature=0.5))
    True
    """
    if options.get("reduction", "mean") != "mean":
        raise ValueError(f"reduction is {options['reduction']!r}, expected 'mean': a ring returns the global mean")
    if "ids" not in signature(loss).parameters:
        name = getattr(loss, "__name__", type(loss).__name__)
        raise ValueError(f"{name} takes no ids, expected a loss that does, such as nt_xent; gather_rows serves others")
    if shard is None and not is_distributed():
        return loss(*rows, ids=ids, **options)
    first = rows[0][0] if isinstance(rows[0], Sequence) else rows[0]
    shard = shard or shard_of(len(first), first.device)
    if ids is None:
        ids = torch.arange(shard.first, shard.first + shard.count, device=first.device)
    with use_backend(RingBackend(shard)):
        return global_mean(loss(*rows, ids=ids, **options), shard)


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
        if query is keys and query_ids is key_ids:
            found: Tensor = _OwnLogSumExp.apply(query, scale, ids[0], self.shard)  # type: ignore[no-untyped-call]
            return found, found if two_way else None
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
        of_keys = RingSum(shard, keys, torch.logaddexp)
        for owner, (block, block_ids) in ring_blocks(shard, keys, key_ids):
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
        grad_query, grad_keys = torch.zeros_like(query), RingSum(ctx.shard, keys, torch.add)
        for owner, (block, block_ids, *side) in ring_blocks(ctx.shard, *sent):
            column_side = (side[0], side[1]) if side else None
            of_query, of_block = block_log_sum_gradients(query, block, scale, ids, block_ids, row_side, column_side)
            grad_query += of_query
            grad_keys.add(owner, of_block)
        return grad_query * scale, grad_keys.result() * scale, (query * grad_query).sum(), None, None, None, None


class _OwnLogSumExp(torch.autograd.Function):
    """Rows with themselves, whose matrix is symmetric: each block of two processes is computed once, for both."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, scale: Tensor, ids: Tensor, shard: Shard) -> Tensor:
        rows, _ = block_log_sums(z, None, scale, ids, ids, False)
        returned = Returned(shard, z)
        for hop, (own, other), (block, block_ids) in half_ring_blocks(shard, z, ids):
            of_block = block.new_full((len(block),), -torch.inf)
            if len(ids[own]) and len(block_ids[other]):
                of_own, columns = block_log_sums(z[own], block[other], scale, ids[own], block_ids[other], True)
                assert columns is not None
                rows[own], of_block[other] = rows[own].logaddexp(of_own), columns
            for received in returned.exchange(hop, of_block):
                rows = rows.logaddexp(received)
        for received in returned.last():
            rows = rows.logaddexp(received)
        ctx.save_for_backward(z, scale, ids, rows)
        ctx.shard = shard
        return rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, scale, ids, rows = ctx.saved_tensors
        grad_z, _ = block_log_sum_gradients(z, None, scale, ids, ids, (grad, rows), None)
        returned = Returned(ctx.shard, z)
        for hop, (own, other), (block, *sides) in half_ring_blocks(ctx.shard, z, ids, grad, rows):
            block_ids, *column_side = (x[other] for x in sides)
            of_block = torch.zeros_like(block)
            if len(ids[own]) and len(block_ids):
                row_side = grad[own], rows[own]
                of_own, of_block[other] = block_log_sum_gradients(
                    z[own], block[other], scale, ids[own], block_ids, row_side, (column_side[0], column_side[1])
                )
                grad_z[own] += of_own
            for received in returned.exchange(hop, of_block):
                grad_z += received
        for received in returned.last():
            grad_z += received
        return grad_z * scale, (z * grad_z).sum() / 2, None, None  # halved: each similarity is in two rows' gradient


class _SoftplusSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, scale: Tensor, bias: Tensor, ids: Tensor, shard: Shard
    ) -> Tensor:
        total = query.new_zeros(len(query))
        for _, (block, block_ids) in ring_blocks(shard, keys, ids):
            grid = Grid(len(query), len(block), ids, block_ids, like=query)
            total += block_softplus_sums(query, block, scale, bias, grid)
        ctx.save_for_backward(query, keys, scale, bias, ids)
        ctx.shard = shard
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, scale, bias, ids = ctx.saved_tensors
        grad_query, grad_bias = torch.zeros_like(query), torch.zeros_like(bias)
        grad_keys = RingSum(ctx.shard, keys, torch.add)
        for owner, (block, block_ids) in ring_blocks(ctx.shard, keys, ids):
            grid = Grid(len(query), len(block), ids, block_ids, like=query)
            of_query, of_block, of_bias = block_softplus_gradients(query, block, scale, bias, grad, grid)
            assert of_block is not None
            grad_query += of_query
            grad_bias += of_bias
            grad_keys.add(owner, of_block)
        return grad_query * scale, grad_keys.result() * scale, (query * grad_query).sum(), grad_bias, None, None
