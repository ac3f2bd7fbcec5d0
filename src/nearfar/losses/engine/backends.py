"""By which way the sums under the losses are made: in tiles here, or, within `sums_by`, by another one.

The losses stay functions of tensors: a way knows where the other keys are, and they do not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from torch import Tensor


class Way(Protocol):
    """Makes the sums of queries over keys. Tensors come in the type that sums are kept in."""

    elsewhere: bool  # whether there are more rows than those that the losses are given

    def log_sums(
        self,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        query_ids: Tensor | None,
        key_ids: Tensor | None,
        two_way: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """`similarity_logsumexp`, and, if asked, that of the keys over the queries."""
        ...

    def softplus_sums(
        self,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        bias: Tensor,
        query_ids: Tensor | None,
        key_ids: Tensor | None,
    ) -> Tensor:
        """`similarity_softplus_sum`."""
        ...


_WAY: ContextVar[Way | None] = ContextVar("nearfar_way", default=None)


def current_way() -> Way | None:
    return _WAY.get()


@contextmanager
def sums_by(way: Way) -> Iterator[None]:
    """Within this context every loss makes its sums by that way."""
    token = _WAY.set(way)
    try:
        yield
    finally:
        _WAY.reset(token)


def refuse_elsewhere(what: str) -> None:
    """What cannot be done where some rows are on other processes."""
    way = _WAY.get()
    if way is not None and way.elsewhere:
        raise ValueError(f"{what} needs all rows in one place, and a ring leaves them on their processes; set gather")


class Dense:
    """The plain matrix, held whole: what a sum is by definition. For tests and certificates."""

    elsewhere = False

    def log_sums(
        self,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        query_ids: Tensor | None,
        key_ids: Tensor | None,
        two_way: bool,
    ) -> tuple[Tensor, Tensor | None]:
        s = _without(scale * query @ keys.T, query_ids, key_ids, float("-inf"))
        return _log_sum_exp(s), _log_sum_exp(s.T) if two_way else None

    def softplus_sums(
        self,
        query: Tensor,
        keys: Tensor,
        scale: Tensor,
        bias: Tensor,
        query_ids: Tensor | None,
        key_ids: Tensor | None,
    ) -> Tensor:
        s = scale * query @ keys.T + bias
        return _without(s.clamp(min=0) + (-s.abs()).exp().log1p(), query_ids, key_ids, 0.0).sum(1)


def _without(s: Tensor, query_ids: Tensor | None, key_ids: Tensor | None, value: float) -> Tensor:
    return s if query_ids is None or key_ids is None else s.masked_fill(query_ids[:, None] == key_ids, value)


def _log_sum_exp(s: Tensor) -> Tensor:
    """Along the rows; where all is excluded -inf, with a gradient of 0."""
    empty = s.isneginf().all(1)
    found = s.masked_fill(empty[:, None], 0.0).logsumexp(1)
    return found.masked_fill(empty, float("-inf"))
