"""The sums under the losses as kernels for GPUs, in Triton; `triton_sums.py` launches them.

A program computes one tile of the similarities in registers, or one block of rows of the gradient. No kernel writes
similarities to memory, and none adds to memory that another one writes, so results do not change from run to run.
"""

import triton
import triton.language as tl


@triton.jit
def _rows_of(x, rows, features, n, d, widen: tl.constexpr):
    """(rows, features) of x (n, d), 0 beyond it."""
    inside = (rows[:, None] < n) & (features[None, :] < d)
    found = tl.load(x + rows[:, None] * d + features[None, :], mask=inside, other=0.0)
    if widen:  # the interpreter has no products of bfloat16
        found = found.to(tl.float32)
    return found


@triton.jit
def _products(x, y, rows, columns, n, m, d, precision: tl.constexpr, widen: tl.constexpr, block_d: tl.constexpr):
    """(rows, columns) float32, the inner products of rows of x (n, d) and rows of y (m, d)."""
    found = tl.zeros((rows.shape[0], columns.shape[0]), dtype=tl.float32)
    for start in range(0, d, block_d):
        features = start + tl.arange(0, block_d)
        a = _rows_of(x, rows, features, n, d, widen)
        b = _rows_of(y, columns, features, m, d, widen)
        found = tl.dot(a, tl.trans(b), found, input_precision=precision)
    return found


@triton.jit
def _counted(row_ids, column_ids, rows, columns, n, m, has_ids: tl.constexpr):
    """Which entries of a tile exist and have different ids."""
    counted = (rows[:, None] < n) & (columns[None, :] < m)
    if has_ids:
        own = tl.load(row_ids + rows, mask=rows < n, other=0)
        others = tl.load(column_ids + columns, mask=columns < m, other=0)
        counted = counted & (own[:, None] != others[None, :])
    return counted


@triton.jit
def _log_sum(s, axis: tl.constexpr):
    """Log-sum-exp of a tile along an axis; -inf of nothing."""
    top = tl.max(s, axis)
    top = tl.where(top == float("-inf"), 0.0, top)
    return tl.log(tl.sum(tl.exp(s - tl.expand_dims(top, axis)), axis)) + top


@triton.jit
def _softplus(s):
    """log(1 + e^s), exact where e^s is far below 1, too."""
    e = tl.exp(-tl.abs(s))
    u = 1.0 + e
    return tl.maximum(s, 0.0) + tl.where(u == 1.0, e, tl.log(u) * (e / tl.where(u == 1.0, 1.0, u - 1.0)))


@triton.jit
def _weights(
    s,
    own_grad,
    own_sum,
    other_grad,
    other_sum,
    rows,
    columns,
    n,
    m,
    softplus: tl.constexpr,
    has_own: tl.constexpr,
    has_others: tl.constexpr,
):
    """A tile of W of its logits, which are -inf where excluded."""
    w = tl.zeros((rows.shape[0], columns.shape[0]), dtype=tl.float32)
    if has_own:
        g = tl.load(own_grad + rows, mask=rows < n, other=0.0)[:, None]
        if not softplus:
            g = g * tl.exp(s - tl.load(own_sum + rows, mask=rows < n, other=0.0)[:, None])
        w += g
    if has_others:
        g = tl.load(other_grad + columns, mask=columns < m, other=0.0)[None, :]
        if not softplus:
            g = g * tl.exp(s - tl.load(other_sum + columns, mask=columns < m, other=0.0)[None, :])
        w += g
    if softplus:
        w = w / (1.0 + tl.exp(-s))
    return w


@triton.jit
def _by_guide(
    own, others, limit, rows, columns, n, m, d, guide: tl.constexpr, widen: tl.constexpr, block_d: tl.constexpr
):
    """Which entries of a tile a guide counts; with guide 2 the columns are the queries, whose limit it is."""
    found = _products(own, others, rows, columns, n, m, d, "ieee", widen, block_d)
    if guide == 2:
        return found <= tl.load(limit + columns, mask=columns < m, other=0.0)[None, :]
    return found <= tl.load(limit + rows, mask=rows < n, other=0.0)[:, None]


@triton.jit
def tile_sums(
    query,  # (n, d)
    keys,  # (m, d)
    query_ids,  # (n,) int64
    key_ids,  # (m,) int64
    guide_query,  # (n, guide_d)
    guide_keys,  # (m, guide_d)
    limit,  # (n,)
    scale,  # (1,)
    bias,  # (1,)
    row_sums,  # (blocks of columns, rows of the panel): of each tile, along its rows
    column_sums,  # (blocks of rows in the panel, m): of each tile, along its columns
    n,
    m,
    d,
    guide_d,
    first,  # the panel's first block of rows
    panel,  # rows of the panel
    softplus: tl.constexpr,  # else log-sum-exp
    symmetric: tl.constexpr,  # keys are the queries: tiles below the diagonal are those above it
    two_way: tl.constexpr,
    has_ids: tl.constexpr,
    has_guide: tl.constexpr,
    precision: tl.constexpr,
    widen: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_d: tl.constexpr,
):
    """The sums of one tile of the matrix along its rows and, if asked, along its columns."""
    i, j = tl.program_id(0), tl.program_id(1)  # neighbors share keys, and the panel's queries stay in cache
    if symmetric:  # noqa: SIM102
        if j < first + i:
            return
    rows = ((first + i) * block_m + tl.arange(0, block_m)).to(tl.int64)
    columns = (j * block_n + tl.arange(0, block_n)).to(tl.int64)
    s = tl.load(scale) * _products(query, keys, rows, columns, n, m, d, precision, widen, block_d) + tl.load(bias)
    counted = _counted(query_ids, key_ids, rows, columns, n, m, has_ids)
    if has_guide:
        counted = counted & _by_guide(guide_query, guide_keys, limit, rows, columns, n, m, guide_d, 1, widen, block_d)
    place = row_sums + j.to(tl.int64) * panel + i * block_m + tl.arange(0, block_m)
    if softplus:
        each = tl.where(counted, _softplus(s), 0.0)
        tl.store(place, tl.sum(each, 1), mask=rows < n)
    else:
        s = tl.where(counted, s, float("-inf"))
        tl.store(place, _log_sum(s, 1), mask=rows < n)
        if two_way or symmetric:
            beyond = (columns < m) & (j > first + i) if symmetric else columns < m
            tl.store(column_sums + i.to(tl.int64) * m + columns, _log_sum(s, 0), mask=beyond)


@triton.jit
def weighted_rows(
    own,  # (n, d)
    others,  # (m, d)
    values,  # (m, d), the others in the type of the second product
    own_ids,  # (n,) int64
    other_ids,  # (m,) int64
    own_grad,  # (n,), the gradient in the sum of each own row
    own_sum,  # (n,), that sum; +inf where it is empty
    other_grad,  # (m,)
    other_sum,  # (m,)
    guide_own,  # (n, guide_d)
    guide_others,  # (m, guide_d)
    limit,  # (n,), or (m,) where the others are the queries
    scale,  # (1,)
    bias,  # (1,)
    out,  # (n, d) float32
    totals,  # (n,) float32, the sums of the weights of each row, of softplus
    n,
    m,
    d,
    guide_d,
    softplus: tl.constexpr,
    has_own: tl.constexpr,
    has_others: tl.constexpr,
    has_ids: tl.constexpr,
    guide: tl.constexpr,  # 0: none; 1: the own rows are the queries; 2: the others are
    precision: tl.constexpr,
    value_precision: tl.constexpr,
    widen: tl.constexpr,
    whole: tl.constexpr,  # a block of features holds all: the sum stays in registers
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_d: tl.constexpr,
):
    """W @ values of one block of own rows, where W is computed tile by tile: the gradient without the factor scale.

    W = own_grad · exp(S - own_sum) + other_grad · exp(S - other_sum), or the gradient times sigmoid(S + bias).
    """
    rows = (tl.program_id(0) * block_m + tl.arange(0, block_m)).to(tl.int64)
    factor, shift = tl.load(scale), tl.load(bias)
    total = tl.zeros((block_m,), dtype=tl.float32)
    gathered = tl.zeros((block_m, block_d), dtype=tl.float32)
    if whole:
        every = tl.arange(0, block_d)
        a = _rows_of(own, rows, every, n, d, widen)
    for start in range(0, m, block_n):
        columns = (start + tl.arange(0, block_n)).to(tl.int64)
        if whole:
            b = _rows_of(others, columns, every, m, d, widen)
            s = factor * tl.dot(a, tl.trans(b), input_precision=precision) + shift
        else:
            s = factor * _products(own, others, rows, columns, n, m, d, precision, widen, block_d) + shift
        counted = _counted(own_ids, other_ids, rows, columns, n, m, has_ids)
        if guide > 0:
            counted = counted & _by_guide(
                guide_own, guide_others, limit, rows, columns, n, m, guide_d, guide, widen, block_d
            )
        s = tl.where(counted, s, float("-inf"))
        w = _weights(s, own_grad, own_sum, other_grad, other_sum, rows, columns, n, m, softplus, has_own, has_others)
        total += tl.sum(w, 1)
        w = w.to(values.dtype.element_ty)  # rounded as the values are
        if widen:
            w = w.to(tl.float32)
        if whole:
            v = _rows_of(values, columns, every, m, d, widen)
            gathered = tl.dot(w, v, gathered, input_precision=value_precision)
        else:
            for begin in range(0, d, block_d):
                features = begin + tl.arange(0, block_d)
                v = _rows_of(values, columns, features, m, d, widen)
                place = out + rows[:, None] * d + features[None, :]
                inside = (rows[:, None] < n) & (features[None, :] < d)
                so_far = tl.load(place, mask=inside & (start > 0), other=0.0)
                tl.store(place, tl.dot(w, v, so_far, input_precision=value_precision), mask=inside)
            tl.debug_barrier()  # the next tile reads what this one wrote
    if whole:
        inside = (rows[:, None] < n) & (every[None, :] < d)
        tl.store(out + rows[:, None] * d + every[None, :], gathered, mask=inside)
    if softplus:
        tl.store(totals + rows, total, mask=rows < n)
