"""The sums as operators of torch: what torch.compile and torch.export call, without looking inside.

Eager code takes the same kernels by `autograd.Sums`, which costs less per call and knows all of torch.func.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from nearfar.losses.engine.autograd import (
    EagerSums,
    Optional,
    Outputs,
    Scalar,
    SecondGradients,
    SumInputs,
    Sums,
    entry,
    save_values,
    saved_values,
)
from nearfar.losses.engine.backends import current_engine, has_triton
from nearfar.losses.engine.layout import default_ids
from nearfar.losses.engine.log_sums import LogSums, Terms, exp_is_safe
from nearfar.losses.engine.small import is_small, is_small_in_graph, small_sums, traced_sums
from nearfar.losses.engine.softplus_sums import SoftplusSums
from nearfar.losses.engine.tiles import current_tile

_ROWS = (
    "Tensor query, Tensor? keys, Tensor? scale, float factor, Tensor? bias, float offset, Tensor? query_ids, "
    "Tensor? key_ids, Tensor? guide_query, Tensor? guide_keys, Tensor? guide_limit, bool paired, bool two_way, "
    "float? max_norm, str engine, str precision, ScalarType? narrow"
)
_ROW_COUNT = 17
_SUMS = "Tensor rows, Tensor columns, Tensor pairs, Tensor totals, Tensor column_totals"
_GRADS = "Tensor? grad_rows, Tensor? grad_columns, Tensor? grad_pairs"
_NAMES = ("log_sums", "softplus_sums")


def apply_sums(name: str, terms: Terms, rows: SumInputs) -> Outputs:
    """The sums "log_sums" or "softplus_sums", differentiable."""
    engine, precision = current_engine()
    terms = terms._replace(engine=engine, precision=precision if rows.query.dtype == torch.float32 else "exact")
    if not torch.compiler.is_compiling():
        transformed = torch._C._are_functorch_transforms_active()
        kernel = _kernel(name, terms, rows)
        by_itself = engine == "auto" and terms.precision == "exact" and not transformed
        if by_itself and is_small(kernel, rows) and (small := small_sums(kernel, rows)) is not None:
            return small
        function = Sums if transformed else EagerSums
        found: Outputs = function.apply(kernel, *rows)  # type: ignore[no-untyped-call]
        return found
    if is_small_in_graph(terms, rows):
        return traced_sums(name, terms, rows)
    flat = (rows.query, rows.keys, *_split(rows.scale, 1.0), *_split(rows.bias, 0.0), *rows[4:], *terms)
    operator = torch.ops.nearfar.log_sums if name == "log_sums" else torch.ops.nearfar.softplus_sums
    traced: Outputs = operator(*flat)[:3]
    return traced


def _split(value: Scalar, default: float) -> tuple[Optional, float]:
    return (value, default) if isinstance(value, Tensor) else (None, value)


def _joined(flat: Sequence[Any]) -> tuple[SumInputs, Terms]:
    query, keys, scale, factor, bias, offset, *constants = flat[:11]
    rows = SumInputs(query, keys, factor if scale is None else scale, offset if bias is None else bias, *constants)
    return rows, Terms(*flat[11:_ROW_COUNT])


def _with_known_ids(rows: SumInputs) -> SumInputs:
    """Default ids as the cached ones, whose order is known. A traced program makes them anew at every step."""
    ids, others = rows.query_ids, rows.key_ids
    if ids is None or others is None or ids.device.type != "cpu" or ids.shape != others.shape:
        return rows
    if not (others is ids or torch.equal(ids, others)):
        return rows
    for views in (1, 2):
        if len(ids) % views == 0:
            known = default_ids(len(ids) // views, views, ids)
            if torch.equal(ids, known):
                return rows._replace(query_ids=known, key_ids=known)
    return rows._replace(key_ids=ids)


def _kernel(name: str, terms: Terms, rows: SumInputs) -> LogSums | SoftplusSums:
    if _takes_triton(terms.engine, rows.query):
        from nearfar.losses.engine.triton_sums import FusedLogSums, FusedSoftplusSums

        return FusedLogSums(terms) if name == "log_sums" else FusedSoftplusSums(terms)
    return LogSums(terms) if name == "log_sums" else SoftplusSums(terms)


def _takes_triton(engine: str, query: Tensor) -> bool:
    kind = query.device.type
    if engine == "auto":
        plain = kind == "cuda" and query.dtype == torch.float32 and current_tile() is None
        return plain and has_triton() and _serves_triton(query.device)
    if engine != "triton":
        return False
    if query.dtype != torch.float32:
        raise TypeError(f"engine 'triton' got rows of {query.dtype}, expected float32 or less; use 'tiles' for these")
    if kind != "cuda":
        from nearfar.losses.engine.triton_sums import INTERPRETED

        if not (kind == "cpu" and INTERPRETED):
            raise ValueError(f"engine 'triton' got rows on {kind}, expected a GPU (CUDA or ROCm); use 'tiles'")
    return True


@cache
def _serves_triton(device: torch.device) -> bool:
    """Triton serves AMD's GPUs, and NVIDIA's from Ampere (2020) on."""
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)


def _register(name: str) -> None:
    full, gradient = f"nearfar::{name}", f"nearfar::{name}_backward"
    torch.library.define(full, f"({_ROWS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
    torch.library.define(
        gradient, f"({_GRADS}, {_ROWS}, {_SUMS}, bool for_keys, bool for_scale) -> (Tensor, Tensor, Tensor, Tensor)"
    )

    def forward(*flat: Any) -> tuple[Tensor, ...]:
        rows, terms = _joined(flat)
        rows, kernel = _with_known_ids(rows), _kernel(name, terms, rows)
        found = kernel.sums(rows)
        if isinstance(kernel, SoftplusSums):
            return tuple(_apart([*found, found[1], found[1]]))
        total, column_total = kernel.totals or (torch.zeros_like(found[0]), None)
        return *_apart(found), total, torch.zeros_like(found[1]) if column_total is None else column_total

    def shapes(*flat: Any) -> tuple[Tensor, ...]:
        rows, terms = _joined(flat)
        query, keys = rows.query, rows.query if rows.keys is None else rows.keys
        count = query.shape[0]
        pairs = count if terms.paired else 0
        columns = keys.shape[0] if terms.two_way and rows.keys is not None else 0
        sizes = (count, columns, pairs, count if name == "log_sums" else 0, columns)
        return tuple(query.new_empty(size) for size in sizes)

    def backward(*args: Any) -> tuple[Tensor, ...]:
        flat = args[3 : 3 + _ROW_COUNT]
        sums, needs = args[3 + _ROW_COUNT : 8 + _ROW_COUNT], args[-2:]
        rows, terms = _joined(flat)
        rows, kernel = _with_known_ids(rows), _kernel(name, terms, rows)
        keys = rows.query if rows.keys is None else rows.keys
        if isinstance(kernel, LogSums) and exp_is_safe(rows.query, keys, rows.scale, terms.max_norm):
            kernel.totals = sums[3], sums[4] if len(sums[4]) else None
        rows_grad, columns_grad, pairs_grad = (None if g is None or g.numel() == 0 else g for g in args[:3])
        found = kernel.gradients(rows, sums[:3], (rows_grad, columns_grad, pairs_grad), (True, *needs, needs[1]))
        wanted = True, needs[0], needs[1], needs[1] and name == "softplus_sums"
        empty = rows.query.new_empty(0)
        return tuple(_apart([empty if g is None or not n else g for g, n in zip(found, wanted, strict=True)]))

    def backward_shapes(*args: Any) -> tuple[Tensor, ...]:
        query, keys = args[3], args[4]
        for_keys, for_scale = args[-2:]
        one = query.new_empty(()) if for_scale else query.new_empty(0)
        of_keys = torch.empty_like(keys) if for_keys and keys is not None else query.new_empty(0)
        of_bias = query.new_empty(()) if for_scale and name == "softplus_sums" else query.new_empty(0)
        return torch.empty_like(query), of_keys, one, of_bias

    torch.library.impl(full, "CompositeExplicitAutograd", forward)
    torch.library.impl(gradient, "CompositeExplicitAutograd", backward)
    torch.library.register_fake(full, shapes)
    torch.library.register_fake(gradient, backward_shapes)

    _register_derivatives(name)


def _register_derivatives(name: str) -> None:
    full, gradient = f"nearfar::{name}", f"nearfar::{name}_backward"

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        save_values(ctx, *inputs, *output)

    def differentiate(ctx: Any, *grads: Optional) -> tuple[Optional, ...]:
        for_keys, for_scale = ctx.needs_input_grad[1], ctx.needs_input_grad[2] or ctx.needs_input_grad[4]
        operator = getattr(torch.ops.nearfar, f"{name}_backward")
        of_query, of_keys, of_scale, of_bias = operator(*grads[:3], *saved_values(ctx), for_keys, for_scale)
        needs = ctx.needs_input_grad
        found = [of_query, of_keys, of_scale, None, of_bias]
        return *(g if need else None for g, need in zip(found, needs[:5], strict=True)), *[None] * (_ROW_COUNT - 5)

    def save_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        save_values(ctx, *inputs)

    def differentiate_again(ctx: Any, *along: Optional) -> tuple[Optional, ...]:
        saved = saved_values(ctx)
        rows, terms = _joined(saved[3 : 3 + _ROW_COUNT])
        sums = saved[3 + _ROW_COUNT : 6 + _ROW_COUNT]
        directions = [None if v is not None and v.numel() == 0 else v for v in along]
        found = SecondGradients.apply(_kernel(name, terms, rows), *directions, *saved[:3], *rows, *sums)  # type: ignore[no-untyped-call]
        needs = ctx.needs_input_grad
        of_grads = [g if need else None for g, need in zip(found[:3], needs[:3], strict=True)]
        of_rows = [g if need else None for g, need in zip([*found[3:6], None, found[6]], needs[3:8], strict=True)]
        return *of_grads, *of_rows, *[None] * (len(saved) - 8)

    torch.library.register_autograd(full, differentiate, setup_context=save)
    torch.library.register_autograd(gradient, differentiate_again, setup_context=save_gradients)
    for operator in (full, gradient):
        torch.library.register_vmap(operator, partial(_one_by_one, getattr(torch.ops.nearfar, operator[9:])))


def _apart(found: Sequence[Tensor]) -> list[Tensor]:
    """Outputs of an operator must not share memory."""
    return [x.clone() if any(x is other for other in found[:i]) else x for i, x in enumerate(found)]


def _one_by_one(operator: Callable[..., Any], info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
    """Each entry of a batch (vmap) in turn."""
    found = [operator(*entry(args, in_dims, i)) for i in range(info.batch_size)]
    return tuple(torch.stack(each) for each in zip(*found, strict=True)), (0,) * len(found[0])


for _name in _NAMES:
    _register(_name)
