"""The logarithm of a quotient of exponentials: not finite where it matters."""

import functools
import math

import torch

from nearfar.losses import info_nce
from tests.losses.agreement import rows
from tests.pitfalls.page import Numbers, as_told, code_of

KINDS = (torch.float16, torch.bfloat16, torch.float32)
TEMPERATURES = (0.5, 0.07, 0.02, 0.005)


@functools.cache
def errors() -> dict[str, list[float]]:
    """By how much each of the twelve losses is off; infinite where it is not finite."""
    met = code_of("quotient")["quotient_loss"]
    z1, z2 = rows(2, 16, 8)
    z2 = z1 + 0.5 * z2
    found: dict[str, list[float]] = {"wrong": [], "right": []}
    for kind in KINDS:
        a, b = z1.to(kind), z2.to(kind)
        for tau in TEMPERATURES:
            truth = info_nce(a.double(), b.double(), temperature=tau)
            for name, loss in (("wrong", met(a, b, tau)), ("right", info_nce(a, b, temperature=tau))):
                found[name].append(float((loss.double() - truth).abs()) if loss.isfinite() else math.inf)
    return found


@functools.cache
def damage() -> Numbers:
    """Counts: the errors themselves are rounding, which differs between processors.

    These counts do not: where exponentials fit, no number of a half type is within 0.00001 of these losses.
    """
    off = {name: [math.isinf(error) for error in each] for name, each in errors().items()}
    far = {name: [1e-5 < error < math.inf for error in each] for name, each in errors().items()}
    return {f"not finite, {name}": float(sum(each)) for name, each in off.items()} | {
        f"off by more than 0.00001, {name}": float(sum(each)) for name, each in far.items()
    }


def claim(numbers: Numbers) -> None:
    assert numbers["not finite, wrong"] > 0 == numbers["not finite, right"]
    assert numbers["off by more than 0.00001, wrong"] > 0 == numbers["off by more than 0.00001, right"]


def test_many_are_not_finite_or_off() -> None:
    as_told("quotient", damage(), claim)


def test_the_others_are_off_by_a_hundred_times_as_much() -> None:
    wrong, right = (max(error for error in errors()[name] if math.isfinite(error)) for name in ("wrong", "right"))
    assert wrong > 100 * right
