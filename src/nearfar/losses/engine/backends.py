"""Backends of the sums under the losses: tiles by default, another one within `use_backend`.

The losses stay functions of tensors: a backend knows where the other keys are, a loss does not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from threading import local
from typing import Literal, Protocol, get_args

from torch import Tensor

from nearfar.losses.arguments import check_choice
from nearfar.losses.engine.guide import Guide
from nearfar.losses.engine.precision import PRECISIONS, Precision, product

Engine = Literal["auto", "tiles", "triton", "dense"]
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


class _Choice:
    """Of the whole process, as `torch.backends` are: torch.compile sees when it changes, and compiles anew."""

    engine: Engine = "auto"
    precision: Precision = "exact"


_CURRENT = _Current()
_CHOICE = _Choice()


def current_backend() -> Backend | None:
    """None: the engine's own sums, by tiles or by Triton."""
    if _CURRENT.backend is None and _CHOICE.engine == "dense":
        return DENSE
    return _CURRENT.backend


def current_engine() -> tuple[Engine, Precision]:
    return _CHOICE.engine, _CHOICE.precision


@contextmanager
def use_engine(engine: Engine | None = None, *, precision: Precision | None = None) -> Iterator[None]:
    """Within this context every loss computes its similarities in this way. The result is the same up to rounding.

    It holds for the whole process, also for other threads, and is noted by each loss for its backward pass.

    Args:
        engine: "tiles" (plain torch, on any device), "triton" (fused kernels for CUDA and ROCm), "dense" (the whole
            matrix, always exact) or "auto": Triton on a GPU where it is installed, else tiles, which small batches on
            a CPU do without. None: as it is.
        precision: "exact" (float32 is float32, whatever `torch.backends` says), "tf32" or "bf16": what the factors of
            products are rounded to; sums are in float32. Faster on GPUs that have it; elsewhere the rounding alone, to
            see what it does. None: as it is. float64 is always exact.

    >>> import torch
    >>> from nearfar.losses import nt_xent
    >>> z = torch.eye(4)
    >>> with use_engine("tiles", precision="bf16"):
    ...     round(float(nt_xent(z, z, temperature=0.5)), 3)
    0.594
    """
    engine, precision = engine or _CHOICE.engine, precision or _CHOICE.precision
    check_choice("engine", engine, get_args(Engine))
    check_choice("precision", precision, PRECISIONS)
    if engine == "triton" and not has_triton():
        raise ImportError(
            "engine 'triton' needs the package triton, which is not installed: use 'tiles', or install it"
        )
    before = _CHOICE.engine, _CHOICE.precision
    _CHOICE.engine, _CHOICE.precision = engine, precision
    try:
        yield
    finally:
        _CHOICE.engine, _CHOICE.precision = before


@cache
def has_triton() -> bool:
    """Whether Triton is installed; GPU builds of torch bring it."""
    return find_spec("triton") is not None


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
        s = _exclude(product(scale * query, keys), query_ids, key_ids, float("-inf"))
        if guide is not None:
            s = s.masked_fill(guide.excluded(slice(len(query)), slice(len(keys))), float("-inf"))
        return _row_logsumexp(s), _row_logsumexp(s.T) if two_way else None

    def softplus_sum(
        self, query: Tensor, keys: Tensor, scale: Tensor, bias: Tensor, query_ids: Ids, key_ids: Ids
    ) -> Tensor:
        s = product(scale * query, keys) + bias
        return _exclude(s.clamp(min=0) + (-s.abs()).exp().log1p(), query_ids, key_ids, 0.0).sum(1)


DENSE = DenseBackend()


def _exclude(s: Tensor, query_ids: Ids, key_ids: Ids, value: float) -> Tensor:
    return s if query_ids is None or key_ids is None else s.masked_fill(query_ids[:, None] == key_ids, value)


def _row_logsumexp(s: Tensor) -> Tensor:
    """Along the rows; -inf with a gradient of 0 where all keys are excluded."""
    empty = s.isneginf().all(1)
    return s.masked_fill(empty[:, None], 0.0).logsumexp(1).masked_fill(empty, float("-inf"))
