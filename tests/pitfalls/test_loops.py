"""Loops over pairs: operations that grow with the square of the batch."""

import functools

import torch

from nearfar.losses import nt_xent
from tests.losses.agreement import rows
from tests.losses.watch import watched
from tests.pitfalls.page import Numbers, as_told, code_of

# versions of torch differ a little
WITHIN = {
    "operations, 4 pairs, wrong": 50,
    "operations, 8 pairs, wrong": 200,
    "operations, 4 pairs, right": 4,
    "operations, 8 pairs, right": 4,
}


@functools.cache
def damage() -> Numbers:
    met, found = code_of("loops")["looped_loss"], {}
    for name, loss in (
        ("wrong", lambda a, b: met(a, b, 0.5)),
        ("right", lambda a, b: nt_xent(a, b, temperature=0.5)),
    ):
        for pairs in (4, 8):
            watched(loss, *rows(2, pairs, 3))  # the order of the rows is remembered from the first time on
            found[f"operations, {pairs} pairs, {name}"] = float(watched(loss, *rows(2, pairs, 3)).operations)
    return found


def claim(numbers: Numbers) -> None:
    assert numbers["operations, 8 pairs, wrong"] > 3.5 * numbers["operations, 4 pairs, wrong"]
    assert numbers["operations, 8 pairs, right"] == numbers["operations, 4 pairs, right"] < 100


def test_four_times_the_operations_for_twice_the_batch() -> None:
    as_told("loops", damage(), claim, WITHIN)


def test_the_loop_is_right_otherwise() -> None:
    z1, z2 = rows(2, 4, 3)
    torch.testing.assert_close(code_of("loops")["looped_loss"](z1, z2, 0.5), nt_xent(z1, z2, temperature=0.5))
