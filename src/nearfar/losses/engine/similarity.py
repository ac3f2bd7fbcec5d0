"""The primitive under every softmax loss: the log-sum-exp of similarities, without holding their matrix.

Each function equals the plain line in its docstring, value and gradient, in memory linear in the number of rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.losses.arguments import (
    as_factor,
    as_scalar,
    check_finite,
    check_ids,
    check_query_and_keys,
    narrow_type,
    upcast_half,
)
from nearfar.losses.engine.autograd import SumInputs
from nearfar.losses.engine.backends import current_backend, require_all_rows
from nearfar.losses.engine.gathered import warn_if_not_gathered
from nearfar.losses.engine.guide import Guide
from nearfar.losses.engine.layout import default_ids
from nearfar.losses.engine.log_sums import LogSums, Terms, weights_of_similarities
from nearfar.losses.engine.operators import apply_sums
from nearfar.losses.engine.precision import no_autocast
from nearfar.losses.engine.tiles import Grid


def similarity_logsumexp(
    query: Tensor,
    keys: Tensor,
    *,
    scale: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    guide: Guide | None = None,
    max_norm: float | None = None,
) -> Tensor:
    """`log Σ_{j: key_ids[j] != query_ids[i]} exp(scale · <query_i, keys_j>)`, exact, in memory linear in B + M.

    Equals `(scale * query @ keys.T).masked_fill(query_ids[:, None] == key_ids, -inf).logsumexp(1)`.
    If `keys` is the same tensor as `query`, half of the tiles are enough.

    Args:
        query: (B, D); not normalized here.
        keys: (M, D).
        scale: multiplies the inner products; a tensor is learned.
        query_ids, key_ids: (B,), (M,) integers; pairs of equal ids are excluded. None: no pair is.
        guide: excludes further pairs, by the similarities of another encoder.
        max_norm: of all rows, up to rounding, if it is known: 1 for normalized rows. Else it is measured.

    Returns:
        (B,), float32 for half-precision input; -inf, with a zero gradient, where every key is excluded.

    >>> _ = torch.manual_seed(0)
    >>> z, ids = torch.randn(5, 3), torch.tensor([0, 0, 1, 2, 2])
    >>> dense = (2 * z @ z.T).masked_fill(ids[:, None] == ids, -torch.inf).logsumexp(1)
    >>> torch.allclose(similarity_logsumexp(z, z, scale=2, query_ids=ids, key_ids=ids), dense)
    True
    """
    return _logsumexp(query, keys, scale, query_ids, key_ids, terms=Terms(max_norm=max_norm), guide=guide).rows


def similarity_logsumexp_two_way(
    query: Tensor,
    keys: Tensor,
    *,
    scale: float | Tensor,
    query_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`similarity_logsumexp` of the queries over the keys and of the keys over the queries, from one pass.

    Returns:
        (B,) and (M,): the log-sum-exp along the rows and along the columns of the same matrix.
    """
    sums = _logsumexp(query, keys, scale, query_ids, key_ids, terms=Terms(two_way=True))
    return sums.rows, sums.rows if sums.columns is None else sums.columns


def positive_and_logsumexp(
    query: Tensor, keys: Tensor, *, scale: float | Tensor, ids: Tensor | None, max_norm: float | None = None
) -> tuple[Tensor, Tensor]:
    """`scale · <query_i, keys_i>`, and `similarity_logsumexp` of the queries over the keys of other ids.

    Both in one autograd function: the sums of the backward pass start from the gradient of the positives.

    Args:
        max_norm: of all rows, up to rounding, where it is known: 1 for normalized rows.
    """
    sums = _logsumexp(query, keys, scale, ids, ids, terms=Terms(paired=True, max_norm=max_norm))
    return sums.pairs, sums.rows


def positive_and_logsumexp_two_way(
    query: Tensor, keys: Tensor, *, scale: float | Tensor, ids: Tensor | None, max_norm: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`positive_and_logsumexp`, and the same log-sum-exp of the keys over the queries."""
    sums = _logsumexp(query, keys, scale, ids, ids, terms=Terms(paired=True, two_way=True, max_norm=max_norm))
    return sums.pairs, sums.rows, sums.rows if sums.columns is None else sums.columns


def paired_similarity(x: Tensor, y: Tensor) -> Tensor:
    """(B,), the inner product of each row of `x` with the same row of `y`; of half precision in float32."""
    return (upcast_half(x) * upcast_half(y)).sum(-1)


def sample_ids(z: Tensor, ids: Tensor | None) -> Tensor:
    """(B,), the given ids, or a different one for each row of `z`."""
    warn_if_not_gathered(z)
    if ids is None:
        require_all_rows("a loss without ids")
        return default_ids(z.shape[0], 1, z)
    check_ids("ids", ids, z.shape[0], z)
    return ids


def count_negatives(query_ids: Tensor, key_ids: Tensor) -> Tensor:
    """(B,), how many keys have an id other than the query's."""
    require_all_rows("counting negatives")
    query_ids, ordered = query_ids.long(), key_ids.long().sort().values
    equal = torch.searchsorted(ordered, query_ids, right=True) - torch.searchsorted(ordered, query_ids)
    return key_ids.shape[0] - equal


class _LogSums(NamedTuple):
    rows: Tensor  # (B,)
    columns: Tensor | None  # (M,); None if not asked for, or equal to the rows'
    pairs: Tensor  # (B,), scale · <query_i, keys_i>, if both have the same ids; empty if not asked for


def _logsumexp(
    query: Tensor,
    keys: Tensor,
    scale: float | Tensor,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    *,
    terms: Terms,
    guide: Guide | None = None,
) -> _LogSums:
    check_query_and_keys(query, keys, query_ids, key_ids)
    check_finite("scale", scale)
    symmetric = keys is query and key_ids is query_ids and guide is None
    q = upcast_half(query)
    k = None if symmetric else upcast_half(keys)
    if (backend := current_backend()) is not None:
        other, factor = q if k is None else k, as_scalar(scale, q)
        rows, columns = backend.logsumexp(q, other, factor, query_ids, key_ids, terms.two_way, guide)
        return _LogSums(rows, columns, factor * paired_similarity(q, other) if terms.paired else q.new_empty(0))
    of_guide = (None, None, None) if guide is None else guide
    inputs = SumInputs(q, k, as_factor(scale, q), 0.0, query_ids, key_ids, *of_guide)
    rows, columns, pairs = apply_sums("log_sums", terms._replace(narrow=narrow_type(query, keys)), inputs)
    return _LogSums(rows, columns if terms.two_way and not symmetric else None, pairs)


@torch.no_grad()
def block_log_sums(
    query: Tensor, keys: Tensor | None, scale: Tensor, query_ids: Tensor | None, key_ids: Tensor | None, two_way: bool
) -> tuple[Tensor, Tensor | None]:
    """The sums of queries over a block of their keys, and of that block over the queries; without autograd.

    Keys of None are the queries themselves.
    """
    kernel = LogSums(Terms(two_way=two_way))
    rows, columns, _ = kernel.sums(SumInputs(query, keys, scale, 0.0, query_ids, key_ids))
    return rows, columns if two_way else None


@torch.no_grad()
def block_log_sum_gradients(
    query: Tensor,
    keys: Tensor | None,
    scale: Tensor,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    rows: tuple[Tensor, Tensor],
    columns: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Gradients in queries and keys, without the factor `scale`, for a block of keys.

    Args:
        keys: None: the queries themselves, whose whole gradient is then the first result; the second is empty.
        rows: (B,), (B,): gradient and log-sum-exp of each query over all keys, not only this block.
        columns: (M,), (M,), the same of each key over all queries; None if not needed.
    """
    grid = Grid(len(query), None if keys is None else len(keys), query_ids, key_ids, like=query)
    with no_autocast(query):
        q = grid.sort_rows(query)
        k = q if keys is None else grid.sort_columns(keys)
        row_side = grid.sort_rows(rows[0]), grid.sort_rows(rows[1])
        column_side = None if columns is None else (grid.sort_columns(columns[0]), grid.sort_columns(columns[1]))
        across = row_side if keys is None else column_side
        weights = weights_of_similarities(grid.similarities(q, k, scale), row_side, across)
        of_query, of_keys = grid.weighted_sums(q, k, weights, for_keys=keys is not None)
    return grid.restore_rows(of_query), query.new_empty(0) if of_keys is None else grid.restore_columns(of_keys)
