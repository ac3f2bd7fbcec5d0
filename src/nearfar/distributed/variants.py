"""A few training steps of a method, in one of the ways that must all give the same result."""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from nearfar.distributed import fsdp
from nearfar.distributed.grad_cache import encode_in_chunks, equal_chunks
from nearfar.distributed.processes import Gather, contrast_shards, encode_shard
from nearfar.losses import tile_size
from nearfar.nn.norm import count_as_one_batch
from nearfar.nn.shard import shard_of

EXACT, SINGLE, HALF = 1e-8, 1e-4, 0.2  # relative: float64 in another order, float32, bfloat16 with its 8 bits
PART = 5  # rows, at most, that are encoded at a time where gradients are cached
_RATE = 0.05  # learning rate of the steps


@dataclass(frozen=True)
class Subject:
    """A method to certify, with batches for it in float64."""

    name: str
    method: nn.Module
    batches: Sequence[Any]


@dataclass(frozen=True)
class VariantResult:
    """The result of a few training steps."""

    values: Tensor  # (steps,)
    gradients: Tensor  # (steps, parameters)
    state: Tensor  # all that is floating point afterwards
    counters: Tensor  # all that is whole numbers
    note: str = ""  # why the result is empty


def encode_cached(method: Any, batch: Any) -> dict[str, Tensor]:
    """By gradient caching."""
    parts = equal_chunks(len(batch.index), PART)
    return encode_in_chunks(lambda rows: method.encode(take_rows(batch, rows)), method, parts)


def encode_divided(method: Any, batch: Any) -> dict[str, Tensor]:
    """What caching must be equal to: BatchNorm sees the same parts, and all of them are in one graph."""
    parts = equal_chunks(len(batch.index), PART)
    with count_as_one_batch(method, len(parts)):
        encoded = [method.encode(take_rows(batch, rows)) for rows in parts]
    return {name: torch.cat([each[name] for each in encoded]) for name in encoded[0]}


@dataclass(frozen=True)
class Variant:
    """One way to train that must give the same result."""

    dtype: torch.dtype  # of the weights
    tolerance: float
    around: Callable[[], AbstractContextManager[Any]] = nullcontext  # each step
    encode: Callable[[Any, Any], dict[str, Tensor]] = lambda method, batch: method.encode(batch)
    accumulate: int = 1  # batches to a step
    once: bool = False  # compare one step: coarse steps soon lead elsewhere
    divided: bool = False  # the reference is divided, too
    in_single: bool = False  # the reference is in float32, too


VARIANTS: dict[str, Variant] = {
    "float64, tiles of 5": Variant(torch.float64, EXACT, lambda: tile_size(5)),
    "float64, cached": Variant(torch.float64, EXACT, encode=encode_cached, divided=True),
    "float32": Variant(torch.float32, SINGLE),
    "float32, tiles of 3": Variant(torch.float32, SINGLE, lambda: tile_size(3), in_single=True),
    "float32, accumulated": Variant(torch.float32, SINGLE, accumulate=2, in_single=True),
    "bfloat16 autocast": Variant(torch.float32, HALF, lambda: torch.autocast("cpu", torch.bfloat16), once=True),
}

REFERENCE = Variant(torch.float64, 0.0)


def run_shared_variants(
    subjects: Sequence[Subject], gather: Gather, say: Callable[[str], None]
) -> list[dict[str, VariantResult]]:
    """In each process: the variants of each method on a batch that all share, in float64."""
    found = []
    for subject in subjects:
        say(f"{subject.name}: {dist.get_world_size()} processes")
        results = {}
        for variant, by, split in SHARED:
            if by == "ring" and not getattr(subject.method, "ring", False):
                continue
            results[variant] = run_variant(subject, REFERENCE, partial(_shared_step, split=split, by=by, gather=gather))
        results["fsdp"] = _run_sharded(subject, partial(_shared_step, split=evenly, by="gather", gather=gather))
        found.append(results)
    return found


def _run_sharded(subject: Subject, step: Callable[[Any, Any], Any]) -> VariantResult:
    """The same with sharded weights (FSDP); a note where a method or a network cannot be sharded."""
    try:
        return run_variant(subject, REFERENCE, step, cut=True)
    except Exception as error:
        nothing, words = torch.zeros(0), " ".join(str(error).split()) or type(error).__name__
        return VariantResult(nothing, nothing, nothing, nothing, f"its weights cannot be sharded (fsdp): {words[:200]}")


def evenly(rows: int, world: int) -> list[int]:
    return [len(part) for part in torch.arange(rows).tensor_split(world)]


def unevenly(rows: int, world: int) -> list[int]:
    """The first process has most rows, the last has one."""
    return [rows - (world - 1) * 2 + 1, *[2] * (world - 2), 1]


def one_without(rows: int, world: int) -> list[int]:
    """The last process has none."""
    return [*evenly(rows, world - 1), 0]


Split = Callable[[int, int], list[int]]

SHARED: list[tuple[str, Any, Split]] = [
    ("gather", "gather", evenly),
    ("gather, uneven", "gather", unevenly),
    ("gather, one without rows", "gather", one_without),
    ("ring", "ring", evenly),
    ("ring, uneven", "ring", unevenly),
]


def run_variant(
    subject: Subject, variant: Variant, shared: Callable[[Any, Any], Any] | None = None, *, cut: bool = False
) -> VariantResult:
    """A few steps of gradient descent, of a copy of the method.

    Args:
        shared: the step, where processes share the batch.
        cut: whether each of them has its part of the weights alone.
    """
    method = copy.deepcopy(subject.method).to(variant.dtype).train()
    if cut:
        fsdp.shard_method(method, init_device_mesh("cpu", (dist.get_world_size(),)))
    parameters = [p for p in method.parameters() if p.requires_grad]
    values, gradients = [], []
    for number, batch in enumerate(subject.batches):
        method.zero_grad(set_to_none=True)
        value = 0.0
        for part in range(variant.accumulate):
            torch.manual_seed(1000 * number + part)
            with variant.around():
                made = in_dtype(_rolled(batch, part), variant.dtype)
                step = shared(method, made) if shared else method.contrast(variant.encode(method, made))  # type: ignore[operator]
                loss = step.loss / variant.accumulate
            loss.backward()
            value += float(loss.detach())
        if cut:
            fsdp.reshard(method)
            fsdp.average_scalars(method)
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        gradient = torch.cat([g.flatten() for g in fsdp.full_state(slopes)]).double()
        if shared is not None and not cut:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()  # as DDP does
            each = gradient.split([p.numel() for p in parameters])
            slopes = [slope.view_as(p) for p, slope in zip(parameters, each, strict=True)]
        with torch.no_grad():
            for p, slope in zip(parameters, slopes, strict=True):
                p.sub_(slope.to(p.dtype), alpha=_RATE)
        method.after_step((number + 1) / len(subject.batches))  # type: ignore[operator]
        values.append(value)
        gradients.append(gradient)
    state = fsdp.full_state(method.state_dict())
    floating = [x.double().flatten() for x in state.values() if x.is_floating_point()]
    counted = [x.long().flatten() for x in state.values() if not x.is_floating_point()]
    return VariantResult(
        torch.tensor(values, dtype=torch.float64),
        torch.stack(gradients),
        torch.cat(floating).nan_to_num(0.0),
        torch.cat([*counted, torch.zeros(0, dtype=torch.long)]),
    )


def _shared_step(method: Any, batch: Any, split: Split, by: Any, gather: Gather) -> Any:
    """The step on a batch that processes share."""
    sizes, rank = split(len(batch.index), dist.get_world_size()), dist.get_rank()
    own = take_rows(batch, slice(sum(sizes[:rank]), sum(sizes[: rank + 1])))
    shard = shard_of(sizes[rank])
    encoded = encode_shard(method, own, shard)
    if by == "gather":
        return method.contrast(gather(encoded, shard))
    return contrast_shards(method, encoded, shard, by=by)


def in_dtype(batch: Any, dtype: torch.dtype) -> Any:
    """The batch with its views in that type, and the whole samples, if there are any."""
    made = replace(batch, views=[x.to(dtype) if x.is_floating_point() else x for x in batch.views])
    whole = getattr(batch, "whole", None)
    return replace(made, whole=whole.to(dtype)) if whole is not None and whole.is_floating_point() else made


def take_rows(batch: Any, rows: slice) -> Any:
    """Some rows of a batch, of all that it has."""
    return _each(batch, lambda x: x[rows])


def _rolled(batch: Any, by: int) -> Any:
    """The same samples in other pairs, so that accumulation has something to add; by 0: as they are."""
    return replace(batch, views=[x.roll(by, 0) if x.is_floating_point() else x for x in batch.views])


def _each(batch: Any, of: Callable[[Tensor], Tensor]) -> Any:
    assert is_dataclass(batch) and not isinstance(batch, type)
    changed: dict[str, Any] = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            changed[field.name] = of(value)
        elif isinstance(value, list | tuple):
            changed[field.name] = [of(x) for x in value]
    return replace(batch, **changed)
