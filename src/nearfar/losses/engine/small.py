"""The sums of small batches: the whole matrix by plain torch, which costs fewer calls than tiles and is as exact.

There the calls, not the entries, take the time.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.losses.engine.autograd import Outputs, SumInputs
from nearfar.losses.engine.backends import DENSE
from nearfar.losses.engine.layout import is_default
from nearfar.losses.engine.log_sums import LogSums, Terms
from nearfar.losses.engine.precision import no_autocast, product
from nearfar.losses.engine.softplus_sums import SoftplusSums
from nearfar.losses.engine.tiles import current_tile

# Up to how many entries of the matrix; measured, as the number where tiles take about the same time.
_FEW_OF_LOG_SUMS, _FEW_OF_SOFTPLUS = 1 << 14, 1 << 16
_FEW_IN_GRAPH = 1 << 18
_FEW_OF_OWN_ROWS = 10_000  # rows compared with themselves: a tile has both sides of the gradient in one


def is_small(kernel: LogSums | SoftplusSums, rows: SumInputs) -> bool:
    """Whether the whole matrix is the faster way; False within `tile_size`."""
    if rows.guide_query is not None or rows.query.device.type != "cpu" or current_tile() is not None:
        return False
    keys = rows.query if rows.keys is None else rows.keys
    few = _FEW_OF_SOFTPLUS
    if isinstance(kernel, LogSums):
        few = _FEW_OF_OWN_ROWS if rows.keys is None else _FEW_OF_LOG_SUMS
    return rows.query.shape[0] * keys.shape[0] <= few


def small_sums(kernel: LogSums | SoftplusSums, rows: SumInputs) -> Outputs | None:
    """The kernel's sums; None if a row has nothing to sum, whose gradient needs care."""
    query, scale = rows.query, rows.scale
    keys = query if rows.keys is None else rows.keys
    mask = None
    if rows.query_ids is not None and rows.key_ids is not None:
        mask = _mask(rows.query_ids, rows.key_ids)
        if mask is None:
            return None
    with no_autocast(query):
        logits = scale * product(query, keys)
        empty = query.new_empty(0)
        if isinstance(kernel, SoftplusSums):
            each = F.softplus(logits + rows.bias, threshold=40.0)
            return (each if mask is None else each.masked_fill(mask, 0.0)).sum(1), empty, empty
        if mask is not None:
            logits = logits.masked_fill(mask, -torch.inf)
        columns = logits.logsumexp(0) if kernel.terms.two_way and rows.keys is not None else empty
        pairs = (query * keys).sum(-1) * scale if kernel.terms.paired else empty
        return logits.logsumexp(1), columns, pairs


def _mask(query_ids: Tensor, key_ids: Tensor) -> Tensor | None:
    """Which entries have equal ids; None if these are all of a row or of a column."""
    if query_ids is key_ids and is_default(query_ids):
        return _default_mask(query_ids)
    return _checked_mask(query_ids, key_ids)


def _checked_mask(query_ids: Tensor, key_ids: Tensor) -> Tensor | None:
    mask = query_ids[:, None] == key_ids
    return None if bool(mask.all(1).any() | mask.all(0).any()) else mask


_default_mask = lru_cache(maxsize=4)(lambda ids: _checked_mask(ids, ids))


def is_small_in_graph(terms: Terms, rows: SumInputs) -> bool:
    """Whether torch.compile should see the whole matrix, no larger than a tile: it fuses what an operator would hide.

    The choice is a guard on the batch size, which an exported program must not have.
    """
    plain = terms.engine == "auto" and terms.precision == "exact" and rows.guide_query is None
    if not plain or rows.query.device.type != "cpu" or torch.compiler.is_exporting():
        return False
    keys = rows.query if rows.keys is None else rows.keys
    return rows.query.shape[0] * keys.shape[0] <= _FEW_IN_GRAPH


def traced_sums(name: str, terms: Terms, rows: SumInputs) -> Outputs:
    """The sums by plain torch, for torch.compile."""
    query, keys, empty = rows.query, rows.query if rows.keys is None else rows.keys, rows.query.new_empty(0)
    scale, bias = (x if isinstance(x, Tensor) else query.new_full((), x) for x in (rows.scale, rows.bias))
    if name == "softplus_sums":
        return DENSE.softplus_sum(query, keys, scale, bias, rows.query_ids, rows.key_ids), empty, empty
    two_way = terms.two_way and rows.keys is not None
    of_rows, of_columns = DENSE.logsumexp(query, keys, scale, rows.query_ids, rows.key_ids, two_way)
    pairs = (query * keys).sum(-1) * scale if terms.paired else empty
    return of_rows, empty if of_columns is None else of_columns, pairs
