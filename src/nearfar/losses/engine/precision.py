"""How exactly the products of similarities are computed, whatever torch's own settings are."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Precision = Literal["exact", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("exact", "tf32", "bf16")
_LOW_BITS = 13  # of float32's 23 bits after the point, those that TF32 does not have


def no_autocast(like: Tensor, precision: str = "exact") -> AbstractContextManager[Any]:
    """Compute in the type that the tensors have: autocast off, and products of float32 in float32.

    `torch.set_float32_matmul_precision` and `torch.backends` may ask for TF32 or bfloat16, also on a CPU: here they are
    not heard. With a precision other than "exact" CUDA may use TF32, which holds numbers rounded to bfloat16, too.
    """
    kind = like.device.type
    casts = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    if torch.compiler.is_compiling():  # of losses that are no operator: a graph cannot change torch's settings
        return torch.autocast(kind, enabled=False) if casts else nullcontext()
    switch = _SWITCHES.get(kind)
    if switch is not None and like.dtype == torch.float32:
        wanted = "ieee" if precision == "exact" or kind != "cuda" else "tf32"
        if switch.read() not in (("none", "ieee") if wanted == "ieee" else ("tf32",)):
            return _set(kind if casts else None, switch, wanted)
    return _set(kind, None, "") if casts else nullcontext()


class _Switch(NamedTuple):
    """Where torch keeps what products of float32 may be rounded to."""

    read: Callable[[], str]
    write: Callable[[str], object]


@contextmanager
def _set(casts: str | None, switch: _Switch | None, wanted: str) -> Iterator[None]:
    before = switch and switch.read()
    try:
        if switch is not None:
            switch.write(wanted)
        with nullcontext() if casts is None else torch.autocast(casts, enabled=False):
            yield
    finally:
        if switch is not None and before is not None:
            switch.write(before)


def _switches() -> dict[str, _Switch]:
    """By kind of device. torch before 2.9 has one of CUDA alone."""
    read = getattr(torch._C, "_get_fp32_precision_getter", None)  # an eighth of the time of its public name
    if read is not None:
        write = torch._C._set_fp32_precision_setter
        names = {"cuda": "cuda", "cpu": "mkldnn"}
        return {k: _Switch(partial(read, name, "matmul"), partial(write, name, "matmul")) for k, name in names.items()}
    matmul = torch.backends.cuda.matmul
    return {
        "cuda": _Switch(
            lambda: "tf32" if matmul.allow_tf32 else "ieee",
            lambda value: setattr(matmul, "allow_tf32", value == "tf32"),
        )
    }


_SWITCHES = _switches()


def product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y.T, exact in the backward pass, too, whatever autocast and torch's settings are; not in torch.func."""
    if torch.compiler.is_compiling():
        traced: Tensor = torch.ops.nearfar.product(x, y)
        return traced
    if torch._C._are_functorch_transforms_active():
        return x @ y.T
    found: Tensor = _Product.apply(x, y)  # type: ignore[no-untyped-call]
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return _product_now(x, y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        of_x = product(grad, y.T) if ctx.needs_input_grad[0] else None
        return of_x, product(grad.T, x.T) if ctx.needs_input_grad[1] else None


def _product_now(x: Tensor, y: Tensor) -> Tensor:
    with no_autocast(x):
        return x @ y.T


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


torch.library.define("nearfar::product", "(Tensor x, Tensor y) -> Tensor")
torch.library.impl("nearfar::product", "CompositeExplicitAutograd", _product_now)
torch.library.register_fake("nearfar::product", lambda x, y: x.new_empty((x.shape[0], y.shape[0])))
torch.library.register_autograd(
    "nearfar::product",
    lambda ctx, grad: (
        torch.ops.nearfar.product(grad, ctx.saved_tensors[1].T) if ctx.needs_input_grad[0] else None,
        torch.ops.nearfar.product(grad.T, ctx.saved_tensors[0].T) if ctx.needs_input_grad[1] else None,
    ),
    setup_context=_save,
)


def rounded(x: Tensor, precision: str) -> Tensor:
    """Float32 rounded to the nearest number of the given precision, still float32; "exact" and other types as they are.

    >>> rounded(torch.tensor([1.001, 3.0]), "bf16").tolist()
    [1.0, 3.0]
    """
    if precision == "exact" or x.dtype != torch.float32:
        return x
    if precision == "bf16":
        return x.bfloat16().float()
    bits = x.view(torch.int32)
    return ((bits + (1 << (_LOW_BITS - 1))) & -(1 << _LOW_BITS)).view(torch.float32)
