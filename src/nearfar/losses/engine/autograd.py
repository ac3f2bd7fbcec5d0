"""The sums under the losses as functions that torch can differentiate twice, batch (vmap) and push tangents through.

`Sums` is the operator; what it sums is its kernel's business (`log_sums.py`, `softplus_sums.py`). Its gradient, its
forward-mode derivative and its second gradient are functions of the same rows, each in linear memory:

    L(v) = d/dε Σ grad · sums(rows + ε v)

is what `Tangents` returns, its gradient in v is what `Gradients` returns, and its gradient in the rows is what
`SecondGradients` returns. So each is the backward pass of another, and only third derivatives are missing.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Optional = Tensor | None
Scalar = float | Tensor  # a number, or a 0-dimensional tensor that may be learned


class SumInputs(NamedTuple):
    """What sums are computed of. All but the first four are constants."""

    query: Tensor  # (B, D)
    keys: Optional  # (M, D); None: the queries themselves, of which half of the tiles are enough
    scale: Scalar
    bias: Scalar
    query_ids: Optional = None
    key_ids: Optional = None
    guide_query: Optional = None  # the three tensors of a `Guide`
    guide_keys: Optional = None
    guide_limit: Optional = None


class Directions(NamedTuple):
    """A direction in which rows move; None: not at all."""

    query: Optional
    keys: Optional
    scale: Optional
    bias: Optional


Outputs = tuple[Tensor, Tensor, Tensor]  # (B,), (M,) or empty, (B,) or empty: along rows, along columns, of pairs
Grads = tuple[Optional, Optional, Optional]  # the gradients in these


class Kernel(Protocol):
    """Sums and their derivatives, computed without autograd. One object serves one call, and may keep what it found."""

    def fresh(self) -> "Kernel":
        """Another one of the same kind, for other rows."""
        ...

    def sums(self, rows: SumInputs) -> Outputs: ...

    def gradients(
        self, rows: SumInputs, sums: Sequence[Tensor], grads: Grads, needs: Sequence[bool]
    ) -> tuple[Optional, Optional, Optional, Optional]:
        """In query, keys, scale and bias; those that are not needed may be None."""
        ...

    def tangents(self, rows: SumInputs, sums: Sequence[Tensor], along: Directions) -> Outputs:
        """The derivative of the sums, with the rows moving along a direction."""
        ...

    def second(
        self, rows: SumInputs, sums: Sequence[Tensor], grads: Grads, along: Directions
    ) -> tuple[Outputs, tuple[Tensor, Tensor, Tensor, Tensor]]:
        """The tangents, and the gradient of Σ grads · tangents in query, keys, scale and bias."""
        ...


_ROWS = len(SumInputs._fields)


class Sums(torch.autograd.Function):
    """(kernel, *rows) to the kernel's sums."""

    @staticmethod
    def forward(kernel: Kernel, *rows: Any) -> Outputs:
        return kernel.sums(SumInputs(*rows))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
        ctx.set_materialize_grads(False)
        ctx.kernel = inputs[0]
        save_values(ctx, *inputs[1:], *output)

    @staticmethod
    def backward(ctx: Any, *grads: Optional) -> tuple[Optional, ...]:
        found = differentiate(ctx.kernel, saved_values(ctx), grads, ctx.needs_input_grad[1:5])
        return None, *found, *[None] * (_ROWS - 4)

    @staticmethod
    def jvp(ctx: Any, _: None, *along: Optional) -> Any:
        return Tangents.apply(ctx.kernel.fresh(), *along[:4], *saved_values(ctx))  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return _one_by_one(Sums.apply, info, in_dims, args)


class EagerSums(torch.autograd.Function):
    """`Sums` outside of torch.func: without `setup_context`, a call costs less, which counts in small batches."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, *rows: Any) -> Outputs:
        output = kernel.sums(SumInputs(*rows))
        Sums.setup_context(ctx, (kernel, *rows), output)
        return output

    backward = Sums.backward
    jvp = Sums.jvp


class Gradients(torch.autograd.Function):
    """(kernel, needs, *grads, *rows, *sums) to the gradients in query, keys, scale and bias; empty if not needed."""

    @staticmethod
    def forward(kernel: Kernel, needs: Sequence[bool], *args: Any) -> tuple[Tensor, ...]:
        rows = SumInputs(*args[3 : 3 + _ROWS])
        found = kernel.gradients(rows, args[3 + _ROWS :], args[:3], needs)
        return tuple(
            rows.query.new_empty(0) if g is None or not need else g for g, need in zip(found, needs, strict=True)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.kernel = inputs[0]
        ctx.needs = inputs[1]
        save_values(ctx, *inputs[2:])

    @staticmethod
    def backward(ctx: Any, *along: Optional) -> tuple[Optional, ...]:
        saved = saved_values(ctx)
        found = SecondGradients.apply(ctx.kernel.fresh(), *_needed(along, ctx.needs), *saved)  # type: ignore[no-untyped-call]
        needed = [g if need else None for g, need in zip(found, ctx.needs_input_grad[2:9], strict=True)]
        return None, None, *needed, *[None] * (len(saved) - 7)

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *along: Optional) -> Any:
        saved = saved_values(ctx)
        second = SecondGradients.apply(ctx.kernel.fresh(), *along[3:7], *saved)[3:]  # type: ignore[no-untyped-call]
        first = differentiate(ctx.kernel.fresh(), saved[3:], along[:3], ctx.needs, always=True)
        return tuple(
            b.new_empty(0) if not need else b if a is None else a + b
            for a, b, need in zip(first, second, ctx.needs, strict=True)
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return _one_by_one(Gradients.apply, info, in_dims, args)


class Tangents(torch.autograd.Function):
    """(kernel, *along, *rows, *sums) to the derivatives of the sums along a direction."""

    @staticmethod
    def forward(kernel: Kernel, *args: Any) -> Outputs:
        return kernel.tangents(SumInputs(*args[4 : 4 + _ROWS]), args[4 + _ROWS :], Directions(*args[:4]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
        ctx.set_materialize_grads(False)
        ctx.kernel = inputs[0]
        save_values(ctx, *inputs[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Optional) -> tuple[Optional, ...]:
        along, saved = saved_values(ctx)[:4], saved_values(ctx)[4:]
        first = differentiate(ctx.kernel.fresh(), saved, grads, ctx.needs_input_grad[1:5], always=True)
        second = SecondGradients.apply(ctx.kernel.fresh(), *along, *grads, *saved)[3:]  # type: ignore[no-untyped-call]
        needed = [g if need else None for g, need in zip(second, ctx.needs_input_grad[5:9], strict=True)]
        return None, *first, *needed, *[None] * (len(saved) - 4)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return _one_by_one(Tangents.apply, info, in_dims, args)


class SecondGradients(torch.autograd.Function):
    """(kernel, *along, *grads, *rows, *sums) to the gradient of Σ grads · tangents in grads and rows."""

    @staticmethod
    def forward(kernel: Kernel, *args: Any) -> tuple[Tensor, ...]:
        rows = SumInputs(*args[7 : 7 + _ROWS])
        tangents, of_rows = kernel.second(rows, args[7 + _ROWS :], args[4:7], Directions(*args[:4]))
        return *tangents, *of_rows

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Optional) -> None:
        raise RuntimeError("a loss of nearfar was differentiated three times, expected twice at most")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return _one_by_one(SecondGradients.apply, info, in_dims, args)


def differentiate(
    kernel: Kernel, saved: Sequence[Any], grads: Sequence[Optional], needs: Sequence[bool], *, always: bool = False
) -> list[Optional]:
    """Gradients in query, keys, scale and bias; differentiable again if anybody asks for that."""
    if always or torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        found = Gradients.apply(kernel, tuple(needs), *grads, *saved)  # type: ignore[no-untyped-call]
    else:
        found = kernel.gradients(SumInputs(*saved[:_ROWS]), saved[_ROWS:], tuple(grads), needs)  # type: ignore[arg-type]
    return [g if need else None for g, need in zip(found, needs, strict=True)]


def _needed(along: Sequence[Optional], needs: Sequence[bool]) -> list[Optional]:
    return [v if need else None for v, need in zip(along, needs, strict=True)]


def save_values(ctx: Any, *values: Any) -> None:
    """Tensors where autograd looks after them, and numbers beside them."""
    tensors = [v if isinstance(v, Tensor) else None for v in values]
    ctx.numbers = [None if isinstance(v, Tensor) else v for v in values]
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def saved_values(ctx: Any) -> list[Any]:
    return [n if t is None else t for t, n in zip(ctx.saved_tensors, ctx.numbers, strict=True)]


def entry(args: Sequence[Any], in_dims: Sequence[Any], i: int) -> list[Any]:
    """The i-th entry of a batch (vmap) of arguments."""
    return [
        x.select(d, i) if isinstance(x, Tensor) and d is not None else x for x, d in zip(args, in_dims, strict=True)
    ]


def _one_by_one(function: Callable[..., Any], info: Any, in_dims: Sequence[Any], args: Sequence[Any]) -> Any:
    """Each entry of a batch (vmap) in turn: the memory is that of one."""
    kernel: Kernel = args[0]
    found = [function(kernel.fresh(), *entry(args, in_dims, i)[1:]) for i in range(info.batch_size)]
    return tuple(torch.stack(each) for each in zip(*found, strict=True)), (0,) * len(found[0])
