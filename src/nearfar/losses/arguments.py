"""Checks of the losses' arguments, and small helpers that all losses share."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]


def check_rows(name: str, x: Tensor, rank: int = 2) -> None:
    """A non-empty floating-point tensor of the given rank."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}, expected a torch.Tensor")
    if not x.is_floating_point():
        raise TypeError(f"{name} has type {x.dtype}, expected a floating-point type: embeddings, not labels or indices")
    if x.ndim != rank:
        layout = {2: "(rows, features)", 3: "(rows, noise, features)"}[rank]
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {layout}")
    if x.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected at least one row and one feature")


def check_compatible(name: str, x: Tensor, other_name: str, other: Tensor, *, features_only: bool = False) -> None:
    """Two tensors of the same shape (or number of features), device and type; 16 and 32 bits may be mixed."""
    wrong = x.shape[-1] != other.shape[-1] if features_only else x.shape != other.shape
    if wrong:
        what = "number of features" if features_only else "shape"
        shapes = f"{name} has shape {tuple(x.shape)} and {other_name} {tuple(other.shape)}"
        raise ValueError(f"{shapes}, expected the same {what}")
    if accumulation_dtype(x) != accumulation_dtype(other):
        raise TypeError(f"{name} has type {x.dtype} and {other_name} {other.dtype}, expected the same; convert one")
    if x.device != other.device:
        raise ValueError(f"{name} is on {x.device} and {other_name} on {other.device}, expected one device")


def check_pair(name: str, x: Tensor, other_name: str, other: Tensor) -> None:
    """Two (B, D) tensors whose rows belong together."""
    check_rows(name, x)
    check_rows(other_name, other)
    check_compatible(name, x, other_name, other)


def check_ids(name: str, ids: Tensor, rows: int, like: Tensor) -> None:
    """(rows,) integers on the device of `like`."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name} is a {type(ids).__name__}, expected a torch.Tensor of integers")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(f"{name} has type {ids.dtype}, expected an integer type")
    if ids.shape != (rows,):
        raise ValueError(f"{name} has shape {tuple(ids.shape)}, expected ({rows},): one for each row")
    if ids.device != like.device:
        raise ValueError(f"{name} is on {ids.device}, expected {like.device}, where the embeddings are")


def check_query_and_keys(query: Tensor, keys: Tensor, query_ids: Tensor | None, key_ids: Tensor | None) -> None:
    """(B, D) and (M, D), with ids for both or for neither."""
    check_rows("query", query)
    check_rows("keys", keys)
    check_compatible("query", query, "keys", keys, features_only=True)
    if (query_ids is None) != (key_ids is None):
        given, missing = ("key_ids", "query_ids") if query_ids is None else ("query_ids", "key_ids")
        raise ValueError(f"{given} is set and {missing} is None, expected both or neither")
    if query_ids is not None and key_ids is not None:
        check_ids("query_ids", query_ids, query.shape[0], query)
        check_ids("key_ids", key_ids, keys.shape[0], keys)


def check_positive(name: str, value: float | Tensor) -> None:
    """A finite number above zero, or a tensor with one."""
    number = scalar(name, value)
    if number is not None and not (0 < number < math.inf):
        raise ValueError(f"{name} is {number:g}, expected a finite number above 0")


def check_finite(name: str, value: float | Tensor) -> None:
    number = scalar(name, value)
    if number is not None and not math.isfinite(number):
        raise ValueError(f"{name} is {number:g}, expected a finite number")


def check_at_least(name: str, value: float, least: float, below: float = math.inf) -> None:
    """A plain number in [least, below)."""
    number = scalar(name, value)
    if number is not None and not (least <= number < below):
        bounds = f"a finite number, at least {least:g}" + (f" and below {below:g}" if below < math.inf else "")
        raise ValueError(f"{name} is {number:g}, expected {bounds}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(repr(c) for c in choices)}")


def scalar(name: str, value: float | Tensor) -> float | None:
    """The number in `value`; None for a tensor that cannot be read without waiting for its device, or while tracing."""
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.is_complex() or value.dtype == torch.bool:
            raise ValueError(f"{name} is {value.dtype} of shape {tuple(value.shape)}, expected a single real number")
        return number_in(value)
    number: Any = value
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}), expected a number or a tensor that holds one")
    try:
        return float(number)
    except OverflowError:  # of an int of hundreds of digits
        raise ValueError(f"{name} is a number of more than 308 digits, expected one that a float holds") from None


def number_in(value: Tensor) -> float | None:
    """The value of a tensor with one entry; None if it is not on a CPU, and within torch.compile and torch.func."""
    if value.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    if torch._C._are_functorch_transforms_active():
        return None
    return float(value.detach())


def as_scalar(value: float | Tensor, like: Tensor) -> Tensor:
    """`value` as a 0-dimensional tensor of the type and device of `like`, with its gradient."""
    if isinstance(value, Tensor):
        return value.reshape(()).to(like)
    return like.new_full((), value)  # on the device: nothing is copied there


def as_factor(value: float | Tensor, like: Tensor) -> float | Tensor:
    """A tensor as `as_scalar` has it; a number stays a number, which a device need not be asked for."""
    return as_scalar(value, like) if isinstance(value, Tensor) else float(value)


def inverse_temperature(temperature: float | Tensor, like: Tensor) -> float | Tensor:
    """The scale 1 / temperature: a number of a number, and a 0-dimensional tensor like `like` of a tensor."""
    check_positive("temperature", temperature)
    if isinstance(temperature, Tensor):
        scale: float | Tensor = 1 / as_scalar(temperature, like)
        number = scalar("temperature", scale)
    else:
        scale = number = 1 / temperature
    if number is not None and not number <= torch.finfo(like.dtype).max:
        raise ValueError(f"temperature is {scalar('temperature', temperature):g}, too small for {like.dtype}")
    return scale


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """The type in which sums over x are computed: float32 for half precision, else that of x."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def narrow_type(x: Tensor, y: Tensor) -> torch.dtype | None:
    """The half precision that both have, if they do."""
    return x.dtype if x.dtype == y.dtype and x.dtype in (torch.float16, torch.bfloat16) else None


def upcast_half(x: Tensor) -> Tensor:
    """Half precision as float32; other types as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def l2_normalize(x: Tensor) -> Tensor:
    """Rows of length 1; half precision becomes float32, since in float16 the squares would overflow at 256.

    A row of zeros stays zero and gets no gradient; `F.normalize` would multiply its gradient by 1e12.
    """
    x = upcast_half(x)
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return _normalized_and_inverse_norm(x)[0]
    normalized: Tensor = _L2Normalize.apply(x)  # type: ignore[no-untyped-call]
    return normalized


class _L2Normalize(torch.autograd.Function):
    """x / |x|, with a gradient of few operations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        z, inverse = _normalized_and_inverse_norm(x)
        ctx.save_for_backward(x, z, inverse)
        return z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        saved: tuple[Tensor, Tensor, Tensor] = ctx.saved_tensors
        x, z, inverse = saved
        if torch.is_grad_enabled():  # under create_graph: as functions of x
            z, inverse = _normalized_and_inverse_norm(x)
            return torch.addcmul(grad, z, (grad * z).sum(-1, keepdim=True), value=-1) * inverse
        return torch.addcmul(grad, z, (grad * z).sum(-1, keepdim=True), value=-1).mul_(inverse)


def _normalized_and_inverse_norm(x: Tensor) -> tuple[Tensor, Tensor]:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    inverse = norm.sign() / norm.clamp(min=torch.finfo(x.dtype).tiny)  # 0 for a row of zeros
    return x * inverse, inverse


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x). torch's default returns x above 20, an error of 2e-9 in float64."""
    return F.softplus(x, threshold=40.0)


def reduce_loss(loss: Tensor, reduction: Reduction, count: Tensor | None = None) -> Tensor:
    """The mean or the sum of row losses, or the rows themselves; `count`: how many rows the mean is over."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    if reduction == "mean":
        return loss.mean() if count is None else loss.sum() / count
    return loss.sum() if reduction == "sum" else loss
