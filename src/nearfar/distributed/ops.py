"""A network on a share of the batch computes what it would on the whole: its statistics and its chance are the whole's.

Within `together(share)` some functions of torch are others, whatever network calls them: batch-norm in training takes
its statistics over the rows of all processes; on a CPU dropout, also that of attention, is drawn for the whole batch,
and each process takes its rows. Nothing of the network is replaced.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nearfar.nn.norm import batch_norm_of_all
from nearfar.nn.shard import Share, rows_are


@contextmanager
def together(share: Share | None) -> Iterator[None]:
    """Networks called in here see a share of the batch and compute as on the whole. None: this is the whole.

    Every process must call the same functions in the same order. On a GPU dropout is each process' own: drawing for
    all would cost as much as all have.
    """
    if share is None:
        yield
        return
    with rows_are(share), _AsOnTheWhole(share):
        yield


class _AsOnTheWhole(TorchFunctionMode):
    def __init__(self, share: Share) -> None:
        super().__init__()
        self.share = share

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        other = _OTHERS.get(func)
        return (func if other is None else _bound(other, self.share, func))(*args, **(kwargs or {}))


def _bound(other: Callable[..., Any], share: Share, func: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: other(share, func, *args, **kwargs)


def _batch_norm(
    share: Share,
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
    return batch_norm_of_all(share, x, running_mean, running_var, weight, bias, momentum, eps)


def _dropout(
    share: Share, func: Callable[..., Tensor], x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    if not training or p == 0 or not _is_drawn_for_all(share, x):
        return func(x, p, training, inplace)
    return x.mul_(_noise(share, x, p)) if inplace else x * _noise(share, x, p)


def _attention(
    share: Share,
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
    if dropout_p == 0 or not _is_drawn_for_all(share, query):
        return func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = scores.softmax(-1)
    return weights * _noise(share, weights, dropout_p) @ value


def _bernoulli(share: Share, func: Callable[..., Tensor], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """In place, as stochastic depth draws it."""
    if not _is_drawn_for_all(share, x):
        return func(x, *args, **kwargs)
    return x.copy_(_own(share, func(_room(share, x), *args, **kwargs)))


def _noise(share: Share, x: Tensor, p: float) -> Tensor:
    """What dropout multiplies the rows x by: 0, or 1 / (1 - p)."""
    if p == 1:
        return torch.zeros_like(x)
    return _own(share, _room(share, x).bernoulli_(1 - p)).div(1 - p)


def _is_drawn_for_all(share: Share, x: Tensor) -> bool:
    """Whether x is rows of the batch, or of several views of it one after the other, on a CPU."""
    return x.device.type == "cpu" and x.ndim > 0 and (len(x) % share.count == 0 if share.count else len(x) == 0)


def _views(share: Share, x: Tensor) -> int:
    return len(x) // share.count if share.count else 1


def _room(share: Share, x: Tensor) -> Tensor:
    """Memory for as many rows as all have, laid out as the rows x are: the order in which chance is drawn."""
    channels_last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty((_views(share, x) * share.total, *x.shape[1:]), dtype=x.dtype, memory_format=layout)


def _own(share: Share, x: Tensor) -> Tensor:
    """Of what was drawn for all, the rows of this process, of each view."""
    return torch.cat([share.own(view) for view in x.split(share.total)])


_OTHERS: dict[Any, Callable[..., Any]] = {
    F.batch_norm: _batch_norm,
    F.dropout: _dropout,
    F.scaled_dot_product_attention: _attention,
    Tensor.bernoulli_: _bernoulli,
}
