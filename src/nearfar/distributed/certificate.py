"""The certificate of a method: loss, gradient and state against the plain dense computation in float64, one process.

Each variant trains the same few steps: in float32, in tiles, with gradients cached, with accumulation, in bfloat16, and
on a batch that several processes share, evenly and unevenly, by gather and by ring, and weights in parts (FSDP).
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.distributed import gather as gathering
from nearfar.distributed.check import relative_error
from nearfar.distributed.contract import check_contract, draws, same_object
from nearfar.distributed.processes import Gather, run_in_processes
from nearfar.distributed.variants import (
    EXACT,
    REFERENCE,
    VARIANTS,
    Subject,
    VariantResult,
    encode_divided,
    in_dtype,
    run_shared_variants,
    run_variant,
)
from nearfar.losses.engine.backends import DenseBackend, use_backend

_SHAKE, _COARSE, _ROUNDINGS = 2.0**-22, 2.0**-17, 10  # what magnifies rounding is held to so many times a shake's
_DRAWS = 4  # fine shakes: whether one turns a ReLU over is chance


@dataclass(frozen=True)
class CertificateRow:
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


def check_method(
    method: nn.Module,
    batches: Sequence[Any],
    *,
    name: str | None = None,
    processes: int = 2,
    gather: Gather | None = None,
    said: Callable[[str], None] | None = None,
) -> list[CertificateRow]:
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
) -> Iterator[list[CertificateRow]]:
    """The rows of each method; all share the same processes, since starting them takes seconds."""
    tell = said or (lambda _: None)
    for subject in subjects:
        check_contract(subject)
    shared: list[dict[str, VariantResult]] = [{} for _ in subjects]
    if processes > 1:
        tell(f"starting {processes} processes")
        shared = run_in_processes(
            processes, run_shared_variants, list(subjects), gather or gathering.gather, said=said
        )[0]
    for subject, results in zip(subjects, shared, strict=True):
        tell(f"{subject.name}: one process")
        yield rows_of(subject, results)


def rows_of(subject: Subject, shared: dict[str, VariantResult]) -> list[CertificateRow]:
    first = replace(subject, batches=subject.batches[:1])
    with use_backend(DenseBackend()):
        truth, truth_of_one = run_variant(subject, REFERENCE), run_variant(first, REFERENCE)
        truth_accumulated = run_variant(subject, replace(REFERENCE, accumulate=2))
        truth_divided = run_variant(subject, replace(REFERENCE, encode=encode_divided))
        in_single = replace(REFERENCE, dtype=torch.float32)
        singles = [run_variant(subject, replace(in_single, accumulate=n)) for n in (1, 2)]
        fine = [run_variant(_shaken(subject, _SHAKE, seed), REFERENCE) for seed in range(_DRAWS)]
        coarse = run_variant(_shaken(subject, _COARSE, 0), REFERENCE)
    # What rounding alone does to this network, kinks and all: float32 cannot be held to less, nor can bfloat16.
    rounding, more = max(_distance(shaken, truth) for shaken in fine), _distance(coarse, truth)
    # Two results in float32 may lie on two sides of a kink, each as far from float64 as float32 is allowed to be.
    seen = _distance(singles[0], truth)
    between_singles = max(_ROUNDINGS * rounding, 2 * seen if seen <= _ROUNDINGS * more else 0.0)
    note = same_object(subject)
    rows = []
    for name, variant in VARIANTS.items():
        result = run_variant(first if variant.once else subject, variant)
        expected = truth_of_one if variant.once else truth_accumulated if variant.accumulate > 1 else truth
        expected = truth_divided if variant.divided else expected
        tolerance = variant.tolerance
        if variant.in_single:  # what both lose is not between them
            expected, tolerance = singles[variant.accumulate - 1], max(tolerance, between_singles)
        elif variant.dtype != torch.float64:
            tolerance = max(tolerance, _ROUNDINGS * more)
        rows.append(_compared(subject.name, name, result, expected, tolerance, note))
    rows += [_compared(subject.name, variant, result, truth, EXACT, note) for variant, result in shared.items()]
    if any(row.off and not row.note for row in rows) and (drawn := draws(subject)):
        rows = [replace(row, note=drawn) if row.off and not row.note else row for row in rows]
    return rows


def _distance(seen: VariantResult, truth: VariantResult) -> float:
    return max(relative_error(seen.gradients, truth.gradients), relative_error(seen.values, truth.values))


def _shaken(subject: Subject, shake: float, seed: int) -> Subject:
    """Weights and views off by a little, as what is lost by rounding on the way through a network.

    Views too: where an image is even, many of its places are equal, and only a difference between them shows what
    rounding does to a maximum or a ReLU.
    """
    method, generator = copy.deepcopy(subject.method).double(), torch.Generator().manual_seed(seed)

    def noise(x: Tensor) -> Tensor:
        return shake * torch.randn(x.shape, generator=generator, dtype=x.dtype)

    with torch.no_grad():
        for p in method.parameters():
            p.mul_(1 + noise(p))
    batches = []
    for batch in (in_dtype(b, torch.float64) for b in subject.batches):
        views = [x + noise(x) if x.is_floating_point() else x for x in batch.views]
        batches.append(replace(batch, views=views))
    return replace(subject, method=method, batches=batches)


def _compared(
    what: str, variant: str, seen: VariantResult, truth: VariantResult, tolerance: float, note: str
) -> CertificateRow:
    if seen.note:
        return CertificateRow(what, variant, math.nan, math.nan, math.nan, tolerance, seen.note)
    if seen.counters.shape != truth.counters.shape or not torch.equal(seen.counters, truth.counters):
        note = note or "counters, pointers or ids of the state differ"
    value, gradient = relative_error(seen.values, truth.values), relative_error(seen.gradients, truth.gradients)
    return CertificateRow(what, variant, value, gradient, relative_error(seen.state, truth.state), tolerance, note)
