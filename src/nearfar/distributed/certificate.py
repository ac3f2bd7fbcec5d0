"""The certificate of a method: loss, gradient and state against the plain dense computation in float64, one process.

Each variant trains the same few steps: in float32, in tiles, with gradients cached, with accumulation, in bfloat16, and
on a batch that several processes share, evenly and unevenly, by gather and by ring, and weights in parts (FSDP).
"""

import copy
import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.overrides import TorchFunctionMode

from nearfar.distributed import fsdp
from nearfar.distributed import gather as gathering
from nearfar.distributed.grad_cache import encode_in_parts, equal_parts
from nearfar.distributed.processes import Gather, contrast_share, encode_share, in_processes
from nearfar.losses import tile_size
from nearfar.losses.engine.backends import Dense, sums_by
from nearfar.nn.norm import counted_once
from nearfar.nn.shard import share_of

EXACT, SINGLE, HALF = 1e-8, 1e-4, 0.2  # relative: float64 in another order, float32, bfloat16 with its 8 bits
_RATE = 0.05  # of the steps between
_PART = 5  # rows, at most, that are encoded at a time where gradients are cached
_DRAWS = frozenset(  # drawn anew by each process, and in the type of its numbers
    (
        *("bernoulli", "exponential_", "multinomial", "normal", "normal_", "poisson", "rand", "rand_like", "randint"),
        *("randint_like", "randn", "randn_like", "random_", "randperm", "uniform_"),
    )
)
_SHAKE, _COARSE, _ROUNDINGS = 2.0**-22, 2.0**-17, 10  # what magnifies rounding is held to so many times a shake's


@dataclass(frozen=True)
class Row:
    """How far one variant of a method's training is from its definition."""

    what: str  # the method
    variant: str
    value_error: float  # relative
    gradient_error: float
    state_error: float  # parameters, queues, banks, momentum networks and running statistics after the steps
    tolerance: float
    note: str = ""

    @property
    def off(self) -> bool:
        """By more than the tolerance, or not a number, unless there is a reason why there is none."""
        errors = (self.value_error, self.gradient_error, self.state_error)
        if self.note and any(map(math.isnan, errors)):
            return False
        return not all(error <= self.tolerance for error in errors)  # NaN is not

    @property
    def passed(self) -> bool:
        return not self.note and not self.off


@dataclass(frozen=True)
class Subject:
    """A method to certify, with batches for it in float64."""

    name: str
    method: nn.Module
    batches: Sequence[Any]


@dataclass(frozen=True)
class Walk:
    """What came of a few steps."""

    values: Tensor  # (steps,)
    gradients: Tensor  # (steps, parameters)
    state: Tensor  # all that is floating point afterwards
    counters: Tensor  # all that is whole numbers
    note: str = ""  # why there is nothing


def check_method(
    method: nn.Module,
    batches: Sequence[Any],
    *,
    name: str | None = None,
    processes: int = 2,
    gather: Gather | None = None,
    said: Callable[[str], None] | None = None,
) -> list[Row]:
    """Whether a method trains as it is defined, however the batch is computed.

    The reference is the method itself in float64 on one process with every similarity matrix held whole; of tiles and
    accumulation in float32 it is that in float32, so that what both lose by rounding does not hide what one does wrong.

    Args:
        method: with `encode`, `contrast` and `after_step`, as `nearfar.methods.Method`; it is left as it is.
        batches: two or more, each a `nearfar.methods.Batch` of at least 8 rows; views are used in float64.
        name: of the table; None: its class.
        processes: to share the batch among, started on this machine; 1: none are started.
        gather: in place of `nearfar.distributed.gather`, to certify one's own.
        said: is told what is being done.
    """
    subject = Subject(name or type(method).__name__, method, batches)
    return [row for found in certify_methods([subject], processes=processes, gather=gather, said=said) for row in found]


def certify_methods(
    subjects: Sequence[Subject],
    *,
    processes: int = 2,
    gather: Gather | None = None,
    said: Callable[[str], None] | None = None,
) -> Iterator[list[Row]]:
    """The rows of each method; all share the same processes, since starting them takes seconds."""
    tell = said or (lambda _: None)
    for subject in subjects:
        check_contract(subject)
    shared: list[dict[str, Walk]] = [{} for _ in subjects]
    if processes > 1:
        tell(f"starting {processes} processes")
        shared = in_processes(processes, _walks_of_all, list(subjects), gather or gathering.gather, said=said)[0]
    for subject, walks in zip(subjects, shared, strict=True):
        tell(f"{subject.name}: one process")
        yield _rows(subject, walks)


class NotThere(ValueError):  # noqa: N818  its words are whole
    """What was named is not there, or not what is expected of a method; says all in a line."""


Result = TypeVar("Result")


def called(fault: str, function: Callable[[], Result]) -> Result:
    """What it gives; an error of code that is not ours says of which, its kind and its place."""
    try:
        return function()
    except NotThere:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        words = " ".join(str(error).split())
        raise NotThere(
            f"{fault}: {type(error).__name__}: {words} ({Path(where.filename).name}:{where.lineno}); --debug shows more"
        ) from error


def check_contract(subject: Subject) -> None:
    """Try `encode`, `contrast` and `after_step` once; what they cannot be compared with is told in a line.

    Raises:
        NotThere: which part of the method is missing, failed, or gave something else than is expected.
    """
    name, method = subject.name, subject.method
    if not isinstance(method, nn.Module):
        raise NotThere(f"{name} is a {type(method).__name__}, expected an nn.Module, such as a nearfar.methods.Method")
    if missing := [part for part in ("encode", "contrast", "after_step") if not callable(getattr(method, part, None))]:
        raise NotThere(
            f"{name} has no {missing[0]}, expected encode, contrast and after_step, as nearfar.methods.Method"
        )
    batches = subject.batches if isinstance(subject.batches, list | tuple) else [subject.batches]
    for batch in batches or [None]:
        if not is_dataclass(batch) or not isinstance(getattr(batch, "index", None), Tensor):
            raise NotThere(f"a batch for {name} is a {type(batch).__name__}, expected a nearfar.methods.Batch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method, batch = copy.deepcopy(method).double().train(), _in(subject.batches[0], torch.float64)
        encoded = called(f"{name}.encode failed", lambda: method.encode(batch))  # type: ignore[operator]
        if not isinstance(encoded, dict) or not all(isinstance(x, Tensor) for x in encoded.values()):
            raise NotThere(f"{name}.encode gave a {type(encoded).__name__}, expected tensors by name, in a dict")
        of_part = called(f"{name}.encode failed on {_PART} rows", lambda: method.encode(_cut(batch, slice(_PART))))  # type: ignore[operator]
        _check_rows(f"{name}.encode", encoded, len(batch.index), of_part)
        step = called(f"{name}.contrast failed", lambda: method.contrast(encoded))  # type: ignore[operator]
        loss = getattr(step, "loss", None)
        if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
            seen = f"a {type(step).__name__}" if loss is None else "a loss that is no scalar with a gradient"
            raise NotThere(f"{name}.contrast gave {seen}, expected a nearfar.methods.Step with a loss to differentiate")
        called(f"{name}.after_step failed", lambda: method.after_step(0.5))  # type: ignore[operator]


def _check_rows(name: str, encoded: dict[str, Tensor], rows: int, of_part: dict[str, Tensor]) -> None:
    """Refuse what is not a row for each sample, as long in a batch as in a part of it."""
    for key, x in encoded.items():
        part = of_part.get(key)
        fault = ""
        if x.ndim == 0 or len(x) != rows:
            fault = f"of shape {tuple(x.shape)} for {rows} samples, expected a row for each"
        elif part is None or part.shape[1:] != x.shape[1:]:
            rest = "none" if part is None else f"rows of shape {tuple(part.shape[1:])}"
            fault = f"rows of shape {tuple(x.shape[1:])} for {rows} samples and {rest} for {_PART}, expected the same"
        if fault:
            raise NotThere(f"{name} gives {key!r} {fault}: what mixes samples belongs into contrast")


def _rows(subject: Subject, shared: dict[str, Walk]) -> list[Row]:
    first = replace(subject, batches=subject.batches[:1])
    with sums_by(Dense()):
        truth, truth_of_one = _walk(subject, _REFERENCE), _walk(first, _REFERENCE)
        truth_accumulated = _walk(subject, replace(_REFERENCE, accumulate=2))
        truth_divided = _walk(subject, replace(_REFERENCE, step=divided_step))
        in_single = replace(_REFERENCE, kind=torch.float32)
        singles = [_walk(subject, replace(in_single, accumulate=n)) for n in (1, 2)]
        fine, coarse = (_walk(_shaken(subject, shake), _REFERENCE) for shake in (_SHAKE, _COARSE))
    # What rounding alone does to this network, kinks and all: float32 cannot be held to less, nor can bfloat16.
    rounding, more = (
        max(relative(shaken.gradients, truth.gradients), relative(shaken.values, truth.values))
        for shaken in (fine, coarse)
    )
    note = same_object(subject)
    rows = []
    for name, variant in VARIANTS.items():
        walk = _walk(first if variant.once else subject, variant)
        expected = truth_of_one if variant.once else truth_accumulated if variant.accumulate > 1 else truth
        expected = truth_divided if variant.divided else expected
        tolerance = variant.tolerance
        if variant.in_single:  # what both lose is not between them
            expected, tolerance = singles[variant.accumulate - 1], max(tolerance, _ROUNDINGS * rounding)
        elif variant.kind != torch.float64:
            tolerance = max(tolerance, _ROUNDINGS * more)
        rows.append(_compared(subject.name, name, walk, expected, tolerance, note))
    rows += [_compared(subject.name, variant, walk, truth, EXACT, note) for variant, walk in shared.items()]
    if any(row.off and not row.note for row in rows) and (drawn := draws(subject)):
        rows = [replace(row, note=drawn) if row.off and not row.note else row for row in rows]
    return rows


class _Drawing(TorchFunctionMode):
    """Notes by which of torch's functions numbers are drawn from its own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _DRAWS and (kwargs or {}).get("generator") is None:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def draws(subject: Subject) -> str:
    """Words where `encode` draws numbers that are others in another type, and on a share of the batch."""
    method, batch = copy.deepcopy(subject.method).double().train(), _in(subject.batches[0], torch.float64)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _Drawing() as seen:
        method.encode(batch)  # type: ignore[operator]
    if not seen.names:
        return ""
    return (
        f"encode draws by {seen.names[0]}, which gives other numbers in float32 than in float64, and on a share of the "
        "batch than on the whole: draw in one type (torch.rand(x.shape).to(x)), on several processes by dropout or "
        "bernoulli_, which are drawn for all, or from the numbers of the samples (batch.index)"
    )


def _shaken(subject: Subject, shake: float) -> Subject:
    """Weights and views off by a little, as what is lost by rounding on the way through a network.

    Views too: where an image is even, many of its places are equal, and only a difference between them shows what
    rounding does to a maximum or a ReLU.
    """
    method, generator = copy.deepcopy(subject.method).double(), torch.Generator().manual_seed(0)

    def noise(x: Tensor) -> Tensor:
        return shake * torch.randn(x.shape, generator=generator, dtype=x.dtype)

    with torch.no_grad():
        for p in method.parameters():
            p.mul_(1 + noise(p))
    batches = []
    for batch in (_in(b, torch.float64) for b in subject.batches):
        views = [x + noise(x) if x.is_floating_point() else x for x in batch.views]
        batches.append(replace(batch, views=views))
    return replace(subject, method=method, batches=batches)


def plain_step(method: Any, batch: Any) -> Tensor:
    """The loss of a batch, to be differentiated."""
    loss: Tensor = method.contrast(method.encode(batch)).loss
    return loss


def cached_step(method: Any, batch: Any) -> Tensor:
    """The loss by gradient caching."""
    parts = equal_parts(len(batch.index), _PART)
    encoded = encode_in_parts(lambda rows: method.encode(_cut(batch, rows)), method, parts)
    loss: Tensor = method.contrast(encoded).loss
    return loss


def divided_step(method: Any, batch: Any) -> Tensor:
    """What caching must come to: batch-norms see the same parts, and all of them are in one graph."""
    parts = equal_parts(len(batch.index), _PART)
    with counted_once(method, len(parts)):
        encoded = [method.encode(_cut(batch, rows)) for rows in parts]
    loss: Tensor = method.contrast({name: torch.cat([each[name] for each in encoded]) for name in encoded[0]}).loss
    return loss


@dataclass(frozen=True)
class Variant:
    """One way to train that must come to the same."""

    kind: torch.dtype  # of the weights
    tolerance: float
    around: Callable[[], AbstractContextManager[Any]] = nullcontext  # each step
    step: Callable[[Any, Any], Tensor] = plain_step
    accumulate: int = 1  # batches to a step
    once: bool = False  # coarse steps soon lead elsewhere: one is compared
    divided: bool = False  # the reference is divided, too
    in_single: bool = False  # the reference is in float32, too


VARIANTS: dict[str, Variant] = {  # one more is one more line
    "float64, tiles of 5": Variant(torch.float64, EXACT, lambda: tile_size(5)),
    "float64, cached": Variant(torch.float64, EXACT, step=cached_step, divided=True),
    "float32": Variant(torch.float32, SINGLE),
    "float32, tiles of 3": Variant(torch.float32, SINGLE, lambda: tile_size(3), in_single=True),
    "float32, accumulated": Variant(torch.float32, SINGLE, accumulate=2, in_single=True),
    "bfloat16 autocast": Variant(torch.float32, HALF, lambda: torch.autocast("cpu", torch.bfloat16), once=True),
}
_REFERENCE = Variant(torch.float64, 0.0)


def _walks_of_all(subjects: Sequence[Subject], gather: Gather, say: Callable[[str], None]) -> list[dict[str, Walk]]:
    """In each process: the walks of each method on a batch that all share, in float64."""
    found = []
    for subject in subjects:
        say(f"{subject.name}: {dist.get_world_size()} processes")
        walks = {}
        for variant, by, split in SHARED:
            if by == "ring" and not getattr(subject.method, "ring", False):
                continue
            walks[variant] = _walk(subject, _REFERENCE, lambda method, batch: _loss(method, batch, split, by, gather))  # noqa: B023
        walks["fsdp"] = _walk_in_parts(subject, lambda method, batch: _loss(method, batch, evenly, "gather", gather))
        found.append(walks)
    return found


def _walk_in_parts(subject: Subject, step: Callable[[Any, Any], Tensor]) -> Walk:
    """The same, each process with its part of the weights; words where a method or a network cannot be cut."""
    try:
        return _walk(subject, _REFERENCE, step, cut=True)
    except Exception as error:
        nothing, words = torch.zeros(0), " ".join(str(error).split()) or type(error).__name__
        return Walk(nothing, nothing, nothing, nothing, f"its weights cannot be cut (fsdp): {words[:200]}")


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


def _walk(
    subject: Subject, variant: Variant, shared: Callable[[Any, Any], Tensor] | None = None, *, cut: bool = False
) -> Walk:
    """A few steps of gradient descent, of a copy of the method.

    Args:
        shared: the step, where processes share the batch.
        cut: whether each of them has its part of the weights alone.
    """
    method = copy.deepcopy(subject.method).to(variant.kind).train()
    if cut:
        fsdp.shard(method, init_device_mesh("cpu", (dist.get_world_size(),)))
    parameters = [p for p in method.parameters() if p.requires_grad]
    values, gradients = [], []
    for number, batch in enumerate(subject.batches):
        method.zero_grad(set_to_none=True)
        value = 0.0
        for part in range(variant.accumulate):
            torch.manual_seed(1000 * number + part)
            with variant.around():
                loss = (shared or variant.step)(method, _in(_rolled(batch, part), variant.kind)) / variant.accumulate
            loss.backward()
            value += float(loss.detach())
        if cut:
            fsdp.at_rest(method)
            fsdp.average_scalars(method)
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        gradient = torch.cat([g.flatten() for g in fsdp.whole(slopes)]).double()
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
    state = fsdp.whole(method.state_dict())
    floating = [x.double().flatten() for x in state.values() if x.is_floating_point()]
    counted = [x.long().flatten() for x in state.values() if not x.is_floating_point()]
    return Walk(
        torch.tensor(values, dtype=torch.float64),
        torch.stack(gradients),
        torch.cat(floating).nan_to_num(0.0),
        torch.cat([*counted, torch.zeros(0, dtype=torch.long)]),
    )


def _loss(method: Any, batch: Any, split: Split, by: Any, gather: Gather) -> Tensor:
    """The loss on a batch that processes share."""
    sizes, rank = split(len(batch.index), dist.get_world_size()), dist.get_rank()
    own = _cut(batch, slice(sum(sizes[:rank]), sum(sizes[: rank + 1])))
    share = share_of(sizes[rank])
    encoded = encode_share(method, own, share)
    if by == "gather":
        of_all: Tensor = method.contrast(gather(encoded, share)).loss
        return of_all
    loss: Tensor = contrast_share(method, encoded, share, by=by).loss
    return loss


def same_object(subject: Subject) -> str:
    """Words where a network that is trained is also run without a gradient under another name: no momentum network.

    Some methods run a network without a gradient, and some have one under two names; only a momentum network that is
    the very network it should follow is both.
    """
    method = copy.deepcopy(subject.method).double().train()
    names: dict[nn.Parameter, set[str]] = {}
    for name, parameter in method.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, set()).add(name.partition(".")[0])
    twice = {p for p, tops in names.items() if len(tops) > 1 and p.requires_grad}
    still: set[nn.Parameter] = set()

    def look(module: nn.Module, _: Any) -> None:
        if not torch.is_grad_enabled():
            still.update(p for p in module.parameters(recurse=False) if p.requires_grad)

    with ExitStack() as hooks:
        for module in method.modules():
            hooks.callback(module.register_forward_pre_hook(look).remove)
        encode_share(method, _in(subject.batches[0], torch.float64), None)  # type: ignore[arg-type]
    if found := twice & still:
        tops = sorted(names[next(iter(found))])
        return f"{' and '.join(tops)} are the same network: no momentum network; make it with nearfar.nn.copy_of"
    return ""


def _compared(what: str, variant: str, seen: Walk, truth: Walk, tolerance: float, note: str) -> Row:
    if seen.note:
        return Row(what, variant, math.nan, math.nan, math.nan, tolerance, seen.note)
    if seen.counters.shape != truth.counters.shape or not torch.equal(seen.counters, truth.counters):
        note = note or "counters, pointers or ids of the state differ"
    errors = (
        relative(seen.values, truth.values),
        relative(seen.gradients, truth.gradients),
        relative(seen.state, truth.state),
    )
    return Row(what, variant, *errors, tolerance, note)


def relative(seen: Tensor, expected: Tensor) -> float:
    return float((seen - expected).norm() / expected.norm().clamp(min=1e-12))


def _in(batch: Any, kind: torch.dtype) -> Any:
    """The batch with its views in that type."""
    return replace(batch, views=[x.to(kind) if x.is_floating_point() else x for x in batch.views])


def _cut(batch: Any, rows: slice) -> Any:
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
