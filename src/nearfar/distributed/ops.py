"""torch operations that treat a shard as the full batch: BatchNorm statistics and dropout match one process.

Within `full_batch_ops(shard)` some functions of torch are replaced, whatever network calls them. BatchNorm in training
takes its statistics over the rows of all processes. On a CPU, dropout (also in attention) is drawn for the full batch,
and each process takes its rows. No module is changed.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nearfar.nn.norm import synced_batch_norm
from nearfar.nn.shard import Shard, current_shard, use_shard


@contextmanager
def full_batch_ops(shard: Shard | None) -> Iterator[None]:
    """Networks called in here see a shard and compute as on the full batch. None: the rows are the full batch.

    Every process must call the same functions in the same order. On a GPU each process draws its own dropout: drawing
    that of all rows would cost too much.
    """
    if shard is None:
        yield
        return
    with use_shard(shard), _FullBatchMode(shard):
        yield


class _FullBatchMode(TorchFunctionMode):
    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self.shard = shard

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        replacement = _REPLACEMENTS.get(func)
        shard = current_shard() or self.shard  # an encoder may take the rows of the batch in groups
        return (func if replacement is None else partial(replacement, shard, func))(*args, **(kwargs or {}))


def _batch_norm(
    shard: Shard,
    func: Callable[..., Tensor],
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training:
        return func(x, running_mean, running_var, weight, bias, training, momentum, eps)
    return synced_batch_norm(shard, x, running_mean, running_var, weight, bias, momentum, eps)


def _dropout(
    shard: Shard, func: Callable[..., Tensor], x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    if not training or p == 0 or not _has_batch_rows(shard, x):
        return func(x, p, training, inplace)
    return x.mul_(_noise(shard, x, p)) if inplace else x * _noise(shard, x, p)


def _attention(
    shard: Shard,
    func: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **more: Any,
) -> Tensor:
    if dropout_p == 0 or not _has_batch_rows(shard, query):
        return func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = scores.softmax(-1)
    return weights * _noise(shard, weights, dropout_p) @ value


def _bernoulli(shard: Shard, func: Callable[..., Tensor], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """In place, as stochastic depth uses it."""
    if not _has_batch_rows(shard, x):
        return func(x, *args, **kwargs)
    return x.copy_(_select(shard, func(_empty_full_batch(shard, x), *args, **kwargs)))


def _noise(shard: Shard, x: Tensor, p: float) -> Tensor:
    """The factor of dropout for the rows x: 0, or 1 / (1 - p)."""
    if p == 1:
        return torch.zeros_like(x)
    return _select(shard, _empty_full_batch(shard, x).bernoulli_(1 - p)).div(1 - p)


def _has_batch_rows(shard: Shard, x: Tensor) -> bool:
    """Whether x has the rows of the batch, or of several views of it one after the other, on a CPU."""
    return x.device.type == "cpu" and x.ndim > 0 and (len(x) % shard.count == 0 if shard.count else len(x) == 0)


def _empty_full_batch(shard: Shard, x: Tensor) -> Tensor:
    """An empty tensor for the rows of all processes, in the memory format of x, in which random numbers fill it."""
    views = len(x) // shard.count if shard.count else 1
    channels_last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty((views * shard.total, *x.shape[1:]), dtype=x.dtype, memory_format=layout)


def _select(shard: Shard, x: Tensor) -> Tensor:
    """The rows of this process, of each view."""
    return torch.cat([shard.select(view) for view in x.split(shard.total)])


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    F.batch_norm: _batch_norm,
    F.dropout: _dropout,
    F.scaled_dot_product_attention: _attention,
    Tensor.bernoulli_: _bernoulli,
}
