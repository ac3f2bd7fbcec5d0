"""Backends of the sums under the losses: tiles by default, another one within `use_backend`.

The losses stay functions of tensors: a backend knows where the other keys are, a loss does not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Protocol

from torch import Tensor

from nearfar.losses.engine.guide import Guide

Ids = Tensor | None  # integers of rows; None: no pair is excluded


class Backend(Protocol):
    """Computes the sums of queries over keys. Half-precision tensors arrive as float32."""

    distributed: bool  # whether other processes have rows, too

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
        """`similarity_logsumexp`, and with `two_way` that of the keys over the queries."""
        ...

    def softplus_sum(
        self, query: Tensor, keys: Tensor, scale: Tensor, bias: Tensor, query_ids: Ids, key_ids: Ids
    ) -> Tensor:
        """`similarity_softplus_sum`."""
        ...


class _Current(local):
    """Of each thread: torch.compile can read it, unlike a context variable."""

    backend: Backend | None = None


_CURRENT = _Current()


def current_backend() -> Backend | None:
    return _CURRENT.backend


@contextmanager
def use_backend(backend: Backend) -> Iterator[None]:
    """Within this context every loss computes its sums with this backend."""
    before, _CURRENT.backend = _CURRENT.backend, backend
    try:
        yield
    finally:
        _CURRENT.backend = before


def mark_as_of_one_batch(query_ids: Tensor, key_ids: Tensor) -> None:
    """Note that queries and keys are views of the same samples, though not equally many."""
    query_ids.nearfar_key_ids = key_ids  # type: ignore[attr-defined]


def are_of_one_batch(query_ids: Tensor, key_ids: Tensor) -> bool:
    """Whether the keys are rows of the batch that the queries are of: no queue, bank or given negatives."""
    return key_ids is query_ids or getattr(query_ids, "nearfar_key_ids", None) is key_ids


def require_all_rows(what: str) -> None:
    """Raise where some rows are on other processes."""
    backend = _CURRENT.backend
    if backend is not None and backend.distributed:
        raise ValueError(f"{what} needs all rows on one process, but a ring leaves them on theirs; set gather")


class DenseBackend:
    """Holds the whole matrix: the definition of each sum, for tests and the certificate."""

    distributed = False

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
        s = _exclude(scale * query @ keys.T, query_ids, key_ids, float("-inf"))
        if guide is not None:
            s = s.masked_fill(guide.excluded(slice(len(query)), slice(len(keys))), float("-inf"))
        return _row_logsumexp(s), _row_logsumexp(s.T) if two_way else None

    def softplus_sum(
        self, query: Tensor, keys: Tensor, scale: Tensor, bias: Tensor, query_ids: Ids, key_ids: Ids
    ) -> Tensor:
        s = scale * query @ keys.T + bias
        return _exclude(s.clamp(min=0) + (-s.abs()).exp().log1p(), query_ids, key_ids, 0.0).sum(1)


def _exclude(s: Tensor, query_ids: Ids, key_ids: Ids, value: float) -> Tensor:
    return s if query_ids is None or key_ids is None else s.masked_fill(query_ids[:, None] == key_ids, value)


def _row_logsumexp(s: Tensor) -> Tensor:
    """Along the rows; -inf with a gradient of 0 where all keys are excluded."""
    empty = s.isneginf().all(1)
    return s.masked_fill(empty[:, None], 0.0).logsumexp(1).masked_fill(empty, float("-inf"))
