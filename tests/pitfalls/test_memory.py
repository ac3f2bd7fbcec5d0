"""Chunks that keep the whole matrix for the backward pass."""

import functools

import pytest
import torch
from torch import Tensor

from nearfar.losses import nt_xent, tile_size
from tests.losses.agreement import Function, rows
from tests.pitfalls.page import Numbers, as_told, code_of


def kept(function: Function, *inputs: Tensor) -> float:
    """MiB that autograd holds from the forward to the backward pass, each storage once."""
    storages: dict[int, int] = {}
    alive = []

    def pack(x: Tensor) -> Tensor:
        alive.append(x)  # so that no address is used twice
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        function(*(x.detach().clone().requires_grad_() for x in inputs))
    return sum(storages.values()) / 2**20


# what autograd keeps differs between versions of torch
WITHIN = {
    "256 pairs, wrong": 0.05,
    "512 pairs, wrong": 0.09,
    "times as much, wrong": 0.08,
    "256 pairs, right": 0.004,
    "512 pairs, right": 0.008,
    "times as much, right": 0.05,
}


@functools.cache
def damage() -> Numbers:
    met, found = code_of("memory")["chunked_loss"], {}
    for name, loss in (
        ("wrong", lambda a, b: met(a, b, 0.5)),
        ("right", lambda a, b: nt_xent(a, b, temperature=0.5)),
    ):
        with tile_size(64):
            few, many = (kept(loss, *rows(2, pairs, 16, dtype=torch.float32)) for pairs in (256, 512))
        found |= {f"256 pairs, {name}": few, f"512 pairs, {name}": many, f"times as much, {name}": many / few}
    return found


def claim(numbers: Numbers) -> None:
    for name in ("wrong", "right"):
        times = numbers[f"512 pairs, {name}"] / numbers[f"256 pairs, {name}"]
        assert numbers[f"times as much, {name}"] == pytest.approx(times, rel=0.02)
    assert numbers["times as much, wrong"] > 3.5 and numbers["times as much, right"] < 2.1
    assert numbers["512 pairs, wrong"] > 10 * numbers["512 pairs, right"]


def test_chunks_are_kept_and_tiles_are_not() -> None:
    as_told("memory", damage(), claim, WITHIN)


def test_the_chunks_are_right_otherwise() -> None:
    z1, z2 = rows(2, 5, 3)
    torch.testing.assert_close(code_of("memory")["chunked_loss"](z1, z2, 0.5, 3), nt_xent(z1, z2, temperature=0.5))
