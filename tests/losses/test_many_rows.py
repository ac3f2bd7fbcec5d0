"""Sizes at which loops are too slow: many tiles, tiles of many strips, many equal ids, against the dense line."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.losses import (
    nt_xent,
    sigmoid_pairs,
    similarity_logsumexp,
    similarity_logsumexp_two_way,
    similarity_softplus_sum,
    symmetric_info_nce,
    top_k_similarity,
)
from tests.losses.agreement import assert_near, number, rows, tiles_of, value_and_gradients

SIDES = [None, 100, 320, 700]  # several tiles of one strip, several of two, one of many
IDS = {
    "none": None,
    "one for each": torch.arange(640).flip(0),
    "pairs": torch.arange(640) % 320,
    "three classes": torch.arange(640) % 3,
    "one class of most": (torch.arange(640) - 620).clamp(min=0),
    "one class": torch.zeros(640, dtype=torch.long),
}

each_way = pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
each_scale = pytest.mark.parametrize("scale", [1.0, 500.0])


def dense(q: Tensor, k: Tensor, scale: Tensor, query_ids: Tensor | None, key_ids: Tensor | None) -> Tensor:
    logits = scale * q @ k.T
    if query_ids is None or key_ids is None:
        return logits
    return logits.masked_fill(query_ids[:, None] == key_ids, -torch.inf)


def dense_logsumexp(logits: Tensor, dim: int) -> Tensor:
    """-inf with a zero gradient where everything is masked; torch's own has NaN there."""
    empty = logits.isneginf().all(dim)
    return logits.masked_fill(empty.unsqueeze(dim), 0.0).logsumexp(dim).masked_fill(empty, -torch.inf)


def assert_same_in_every_tiling(function: object, expected: tuple[Tensor, ...], *inputs: Tensor) -> None:
    for side in SIDES:
        with tiles_of(side):
            found = value_and_gradients(function, *inputs)  # type: ignore[arg-type]
        for a, b in zip(found, expected, strict=True):
            assert_near(a, b, 1e-10)


@each_scale
@each_way
def test_rows_over_themselves_equal_the_dense_line(ids: Tensor | None, scale: float) -> None:
    inputs = rows(640, 4), number(scale)
    expected = value_and_gradients(lambda z, s: dense_logsumexp(dense(z, z, s, ids, ids), 1), *inputs)
    assert_same_in_every_tiling(
        lambda z, s: similarity_logsumexp(z, z, scale=s, query_ids=ids, key_ids=ids), expected, *inputs
    )


@each_scale
@each_way
def test_both_ways_equal_the_dense_line(ids: Tensor | None, scale: float) -> None:
    query_ids = None if ids is None else ids[:500]
    inputs = rows(500, 4), rows(640, 4, seed=1), number(scale)

    def of_both(q: Tensor, k: Tensor, s: Tensor) -> Tensor:
        logits = dense(q, k, s, query_ids, ids)
        return torch.cat([dense_logsumexp(logits, 1), dense_logsumexp(logits, 0)])

    assert_same_in_every_tiling(
        lambda q, k, s: torch.cat(similarity_logsumexp_two_way(q, k, scale=s, query_ids=query_ids, key_ids=ids)),
        value_and_gradients(of_both, *inputs),
        *inputs,
    )


@each_way
def test_softplus_sum_equals_the_dense_line(ids: Tensor | None) -> None:
    query_ids = None if ids is None else ids[:500]
    inputs = rows(500, 4), rows(640, 4, seed=1), number(2.0), number(-1.0)
    expected = value_and_gradients(
        lambda q, k, s, b: F.softplus(dense(q, k, s, query_ids, ids) + b, threshold=50).sum(1), *inputs
    )
    assert_same_in_every_tiling(
        lambda q, k, s, b: similarity_softplus_sum(q, k, scale=s, bias=b, query_ids=query_ids, key_ids=ids),
        expected,
        *inputs,
    )


@pytest.mark.parametrize("name", ["none", "one for each", "pairs", "three classes"])
def test_top_k_equals_the_dense_line(name: str) -> None:
    ids = IDS[name]
    query_ids = None if ids is None else ids[:500]
    inputs = rows(500, 4), rows(640, 4, seed=1)
    expected = value_and_gradients(lambda q, k: dense(q, k, number(1.0), query_ids, ids).topk(30).values, *inputs)
    assert_same_in_every_tiling(
        lambda q, k: top_k_similarity(q, k, k=30, query_ids=query_ids, key_ids=ids)[0], expected, *inputs
    )


@pytest.mark.parametrize("side", SIDES)
def test_float32_at_a_usual_size_and_temperature_is_right_to_five_digits(side: int | None) -> None:
    z1, z2 = rows(2, 320, 128, dtype=torch.float32)
    exact1, exact2 = (F.normalize(z.double(), dim=1) for z in (z1, z2))
    both = torch.cat([exact1, exact2])
    logits = (both @ both.T / 0.07).fill_diagonal_(-torch.inf)
    across = exact1 @ exact2.T
    target = torch.arange(320)
    sign = 2 * torch.eye(320, dtype=torch.float64) - 1
    with tiles_of(side):
        assert_near(nt_xent(z1, z2, temperature=0.07), F.cross_entropy(logits, torch.arange(640).roll(320)), 1e-5)
        clip = (F.cross_entropy(across / 0.07, target) + F.cross_entropy(across.T / 0.07, target)) / 2
        assert_near(symmetric_info_nce(z1, z2, temperature=0.07), clip, 1e-5)
        siglip = -F.logsigmoid(sign * (10 * across - 10)).sum(1).mean()
        assert_near(sigmoid_pairs(z1, z2, logit_scale=10, logit_bias=-10), siglip, 1e-5)
