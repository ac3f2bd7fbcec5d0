"""The sums under the losses by fused Triton kernels: for CUDA and ROCm, or on a CPU by Triton's interpreter.

Each is the tile kernel with its sums and first gradients computed on the device in one go. Second derivatives and
forward mode are those of the tiles.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from nearfar.losses.engine import triton_kernels as kernels
from nearfar.losses.engine.autograd import Grads, Optional, Outputs, Scalar, SumInputs
from nearfar.losses.engine.log_sums import LogSums, no_empty
from nearfar.losses.engine.precision import rounded
from nearfar.losses.engine.softplus_sums import SoftplusSums

T = TypeVar("T")
INTERPRETED = not isinstance(kernels.tile_sums, triton.runtime.jit.JITFunction)  # TRITON_INTERPRET=1
_PANEL = 8192  # rows whose tile sums are held at once: this times the other rows, divided by a block's side


class Blocks(NamedTuple):
    """The sides of a tile, how many features are multiplied at once, and how a program is run."""

    m: int
    n: int
    d: int
    warps: int = 4
    stages: int = 2


# The last of each fits every GPU. Products in exact float32 have no matrix unit: each is unrolled, so these are few and
# small, and compile in seconds.
_FOR_EXACT = (Blocks(64, 64, 32, 4, 2), Blocks(128, 128, 16, 8, 2), Blocks(64, 64, 16, 4, 2))
_FOR_SUMS = (  # square: a symmetric matrix has the same blocks of rows and columns
    Blocks(128, 128, 32, 8, 3),
    Blocks(128, 128, 64, 8, 3),
    Blocks(64, 64, 64, 4, 3),
    Blocks(64, 64, 32, 4, 3),
)
_FOR_WHOLE_ROWS = (Blocks(64, 64, 0), Blocks(128, 64, 0, 8), Blocks(64, 32, 0), Blocks(32, 32, 0))
_FOR_GRADIENTS = (Blocks(64, 64, 64, 4, 3), Blocks(128, 128, 64, 8, 2), Blocks(64, 64, 32), Blocks(32, 32, 64))
_WHOLE = 256  # up to so many features the gradient of a block of rows stays in registers
_WHOLE_EXACT = 32
_WIDTH = 16  # features are padded to a multiple of this, so that loads are aligned
_SMALL = Blocks(32, 32, 32)  # under the interpreter
_CHOSEN: dict[tuple[Any, ...], Blocks] = {}


class FusedLogSums(LogSums):
    """The log-sum-exps by fused kernels."""

    def fresh(self) -> "FusedLogSums":
        return FusedLogSums(self.terms)

    def sums(self, rows: SumInputs) -> Outputs:
        operands = _operands(rows, self.terms.precision, self.terms.narrow)
        symmetric = rows.keys is None
        of_rows, of_columns = _tile_sums(operands, False, symmetric, self.terms.two_way and not symmetric)
        empty = of_rows.new_empty(0)
        pairs = _paired(rows) * rows.scale if self.terms.paired else empty
        return of_rows, of_columns if self.terms.two_way and not symmetric else empty, pairs

    def gradients(
        self, rows: SumInputs, sums: Sequence[Tensor], grads: Grads, needs: Sequence[bool]
    ) -> tuple[Optional, Optional, Optional, None]:
        of_rows, of_columns, of_pairs = grads
        operands = _operands(rows, self.terms.precision, self.terms.narrow)
        query, keys = rows.query, rows.query if rows.keys is None else rows.keys
        symmetric = rows.keys is None
        row_side = None if of_rows is None else (of_rows.contiguous(), no_empty(sums[0]))
        two_way = self.terms.two_way and not symmetric and of_columns is not None
        column_side = (of_columns.contiguous(), no_empty(sums[1])) if two_way and of_columns is not None else None
        across = row_side if symmetric else column_side
        of_query, _ = _weighted_rows(operands, row_side, across, softplus=False)
        of_keys = None
        if needs[1] and not symmetric:
            of_keys, _ = _weighted_rows(operands.swapped(), column_side, row_side, softplus=False)
        if of_pairs is not None:
            of_query = of_query.addcmul_(of_pairs[:, None], keys, value=2 if symmetric else 1)
            of_keys = None if of_keys is None else of_keys.addcmul_(of_pairs[:, None], query)
        of_scale = (query * of_query).sum() * (0.5 if symmetric else 1.0) if needs[2] else None
        return of_query.mul_(rows.scale), None if of_keys is None else of_keys.mul_(rows.scale), of_scale, None


class FusedSoftplusSums(SoftplusSums):
    """The sums of softplus by fused kernels."""

    def fresh(self) -> "FusedSoftplusSums":
        return FusedSoftplusSums(self.terms)

    def sums(self, rows: SumInputs) -> Outputs:
        found, _ = _tile_sums(_operands(rows, self.terms.precision, self.terms.narrow), True, False, False)
        return found, found.new_empty(0), found.new_empty(0)

    def gradients(
        self, rows: SumInputs, sums: Sequence[Tensor], grads: Grads, needs: Sequence[bool]
    ) -> tuple[Optional, Optional, Optional, Optional]:
        operands = _operands(rows, self.terms.precision, self.terms.narrow)
        grad = rows.query.new_zeros(len(rows.query)) if grads[0] is None else grads[0].contiguous()
        side = grad, grad
        of_query, totals = _weighted_rows(operands, side, None, softplus=True)
        of_keys = _weighted_rows(operands.swapped(), None, side, softplus=True)[0] if needs[1] else None
        of_scale = (rows.query * of_query).sum() if needs[2] else None
        return (
            of_query.mul_(rows.scale),
            None if of_keys is None else of_keys.mul_(rows.scale),
            of_scale,
            totals.sum(),
        )


class _Operands(NamedTuple):
    """What the kernels read: rows in the type of the products, and one-element tensors for numbers."""

    own: Tensor  # (n, D), the queries, or the keys where swapped
    others: Tensor  # (m, D)
    own_values: Tensor  # (n, D), in the type of the gradient's products
    other_values: Tensor  # (m, D)
    own_ids: Optional
    other_ids: Optional
    guide_own: Optional
    guide_others: Optional
    limit: Optional
    scale: Tensor  # (1,)
    bias: Tensor  # (1,)
    precision: str  # of the products, in Triton's words
    width: int  # features without the padding
    queries_first: bool = True

    def swapped(self) -> "_Operands":
        return self._replace(
            own=self.others,
            others=self.own,
            own_values=self.other_values,
            other_values=self.own_values,
            own_ids=self.other_ids,
            other_ids=self.own_ids,
            guide_own=self.guide_others,
            guide_others=self.guide_own,
            queries_first=False,
        )


def _operands(rows: SumInputs, precision: str, narrow: torch.dtype | None) -> _Operands:
    query, keys = rows.query, rows.query if rows.keys is None else rows.keys
    width, query, keys = query.shape[1], _padded(query), _padded(keys)
    q = _typed(query, precision, narrow)
    k = q if rows.keys is None else _typed(keys, precision, narrow)
    exact = precision == "exact"
    tf32 = precision == "tf32" and torch.version.hip is None
    ids = [None if x is None else x.long().contiguous() for x in (rows.query_ids, rows.key_ids)]
    limit = None if rows.guide_limit is None else rows.guide_limit.float().contiguous()
    guide = [None if x is None else _padded(x.float()).contiguous() for x in rows[6:8]]
    return _Operands(
        q,
        k,
        query if exact else q,
        keys if exact else k,
        ids[0],
        ids[1],
        guide[0],
        guide[1],
        limit,
        _one(rows.scale, query),
        _one(rows.bias, query),
        "tf32" if tf32 else "ieee",
        width,
    )


def _is_float32(x: _Operands) -> bool:
    """Whether a product is one of float32 as it is, which has no matrix unit."""
    return x.precision == "ieee" and torch.float32 in (x.own.dtype, x.other_values.dtype)


def _padded(x: Tensor) -> Tensor:
    """Rows in one piece of memory, as long as whole loads of it."""
    return F.pad(x, (0, -x.shape[1] % _WIDTH)).contiguous()


def _typed(x: Tensor, precision: str, narrow: torch.dtype | None) -> Tensor:
    """Rows as the products take them. Rows that were of half precision are so again: nothing is lost."""
    if precision == "exact":
        return x if narrow is None else x.to(narrow)
    return x.bfloat16() if precision == "bf16" else rounded(x, precision)


def _one(value: Scalar, like: Tensor) -> Tensor:
    return value.reshape(1).to(like) if isinstance(value, Tensor) else like.new_full((1,), value)


def _paired(rows: SumInputs) -> Tensor:
    return (rows.query * (rows.query if rows.keys is None else rows.keys)).sum(-1)


def _tile_sums(x: _Operands, softplus: bool, symmetric: bool, two_way: bool) -> tuple[Tensor, Tensor]:
    """(n,) and (m,): the sums along rows and along columns, from those of tiles, a panel of rows at a time."""
    n, m, d = len(x.own), len(x.others), x.own.shape[1]
    start = 0.0 if softplus else -torch.inf

    def run(blocks: Blocks) -> tuple[Tensor, Tensor]:
        rows = x.scale.new_full((n,), start)
        columns = rows if symmetric else x.scale.new_full((m if two_way else 0,), start)
        across = symmetric or two_way
        column_blocks, per_panel = -(-m // blocks.n), max(1, _PANEL // blocks.m)
        for first in range(0, -(-n // blocks.m), per_panel):
            count = min(per_panel, -(-n // blocks.m) - first)
            panel = count * blocks.m
            of_rows = x.scale.new_full((column_blocks, panel), start)
            of_columns = x.scale.new_full((count, m), start) if across else of_rows
            kernels.tile_sums[(count, column_blocks)](
                x.own,
                x.others,
                *_or(x.own, x.own_ids, x.other_ids, x.guide_own, x.guide_others, x.limit),
                x.scale,
                x.bias,
                of_rows,
                of_columns,
                n,
                m,
                d,
                0 if x.guide_own is None else x.guide_own.shape[1],
                first,
                panel,
                softplus=softplus,
                symmetric=symmetric,
                two_way=two_way,
                has_ids=x.own_ids is not None,
                has_guide=x.guide_own is not None,
                **_how(x, blocks),
            )
            here = slice(first * blocks.m, min(n, first * blocks.m + panel))
            length = here.stop - here.start
            found = of_rows[:, :length]
            rows[here] = found.sum(0) if softplus else torch.logaddexp(rows[here], found.logsumexp(0))
            if across:
                columns.copy_(torch.logaddexp(columns, of_columns.logsumexp(0)))
        return rows, columns

    return _with_blocks(x, ("sums", symmetric, two_way, softplus), _FOR_EXACT if _is_float32(x) else _FOR_SUMS, run)


def _weighted_rows(
    x: _Operands, own_side: tuple[Tensor, Tensor] | None, other_side: tuple[Tensor, Tensor] | None, *, softplus: bool
) -> tuple[Tensor, Tensor]:
    """(n, D) W @ others, and (n,) the sums of W's rows; a side is the gradients and the sums of its rows."""
    n, m, d = len(x.own), len(x.others), x.own.shape[1]
    exact = _is_float32(x)
    whole = d <= (_WHOLE_EXACT if exact else _WHOLE)
    out = x.scale.new_zeros(n, d)
    totals = x.scale.new_zeros(n if softplus else 0)
    if own_side is None and other_side is None:
        return out[:, : x.width].contiguous(), totals

    def run(blocks: Blocks) -> tuple[Tensor, Tensor]:
        if whole and not INTERPRETED:
            blocks = blocks._replace(d=max(16, triton.next_power_of_2(d)))
        elif whole:
            blocks = blocks._replace(d=max(blocks.d, triton.next_power_of_2(d)))
        own, others = own_side or other_side, other_side or own_side
        assert own is not None and others is not None
        kernels.weighted_rows[(-(-n // blocks.m),)](
            x.own,
            x.others,
            x.other_values,
            *_or(x.own, x.own_ids, x.other_ids),
            *own,
            *others,
            *_or(x.own, x.guide_own, x.guide_others, x.limit),
            x.scale,
            x.bias,
            out,
            totals,
            n,
            m,
            d,
            0 if x.guide_own is None else x.guide_own.shape[1],
            softplus=softplus,
            has_own=own_side is not None,
            has_others=other_side is not None,
            has_ids=x.own_ids is not None,
            guide=0 if x.guide_own is None else 1 if x.queries_first else 2,
            value_precision=x.precision,
            whole=whole,
            **_how(x, blocks),
        )
        return out[:, : x.width].contiguous(), totals

    what = ("rows", own_side is None, other_side is None, softplus)
    return _with_blocks(x, what, _FOR_EXACT if exact else _FOR_WHOLE_ROWS if whole else _FOR_GRADIENTS, run)


def _or(default: Tensor, *given: Optional) -> list[Tensor]:
    """The given tensors; a kernel does not read those that stand in for None."""
    return [default if x is None else x for x in given]


def _how(x: _Operands, blocks: Blocks) -> dict[str, Any]:
    sides = {"block_m": blocks.m, "block_n": blocks.n, "block_d": blocks.d}
    launch = {} if INTERPRETED else {"num_warps": blocks.warps, "num_stages": blocks.stages}
    return {"precision": x.precision, "widen": INTERPRETED} | sides | launch


def _with_blocks(x: _Operands, what: tuple[Any, ...], candidates: Sequence[Blocks], run: Callable[[Blocks], T]) -> T:
    """Run with the quickest blocks, which are measured the first time that such a matrix is met.

    Under `torch.use_deterministic_algorithms` the first that fit are taken, since blocks decide the order of sums.
    """
    if INTERPRETED:
        return run(_SMALL)
    with _on(x.own):
        sizes = (len(x.own).bit_length(), len(x.others).bit_length(), x.own.shape[1])
        key = (*what, *sizes, x.own.dtype, x.other_values.dtype, x.precision, x.guide_own is None, x.own.device)
        if key not in _CHOSEN:
            _CHOSEN[key] = _quickest(candidates, run)
        return run(_CHOSEN[key])


def _quickest(candidates: Sequence[Blocks], run: Callable[[Blocks], object]) -> Blocks:
    times: dict[Blocks, float] = {}
    for blocks in candidates:
        try:
            run(blocks)
            if torch.are_deterministic_algorithms_enabled() or torch.cuda.is_current_stream_capturing():
                return blocks
            times[blocks] = triton.testing.do_bench(lambda blocks=blocks: run(blocks), warmup=5, rep=20)
        except (triton.runtime.errors.OutOfResources, triton.compiler.errors.CompilationError):
            continue  # more shared memory or registers than this device has
    if not times:
        raise RuntimeError("no tiles of the Triton kernel fit this device; use_engine('tiles') does without it")
    return min(times, key=lambda blocks: times[blocks])


def _on(x: Tensor) -> AbstractContextManager[Any]:
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
