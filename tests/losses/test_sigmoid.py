import math

import pytest
import torch

from nearfar.losses import reference, sigmoid_pairs, similarity_softplus_sum
from nearfar.losses.sigmoid import sigmoid_pairs_reference
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows
from tests.losses.catalogue import merged_ids


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 3, 7])
@pytest.mark.parametrize(("logit_scale", "logit_bias"), [(10.0, -10.0), (1.0, 2.0), (100.0, -3.0)])
def test_sigmoid_pairs_equals_the_papers_double_loop(
    logit_scale: float, logit_bias: float, batch: int, merged: bool
) -> None:
    ids = merged_ids(batch) if merged else None
    assert_equals_reference(
        lambda z1, z2, t, b: sigmoid_pairs(z1, z2, logit_scale=t, logit_bias=b, ids=ids, reduction="none"),
        lambda z1, z2, t, b: sigmoid_pairs_reference(z1, z2, t, b, ids),
        *rows(2, batch, 3),
        number(logit_scale),
        number(logit_bias),
    )


@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 7), (7, 2)])
def test_softplus_sum_equals_its_double_loop(queries: int, keys: int, with_ids: bool) -> None:
    query_ids = torch.arange(queries) % 3 if with_ids else None
    key_ids = torch.arange(keys) % 2 if with_ids else None
    assert_equals_reference(
        lambda q, k, s, b: similarity_softplus_sum(q, k, scale=s, bias=b, query_ids=query_ids, key_ids=key_ids),
        lambda q, k, s, b: reference.similarity_softplus_sum(q, k, s, b, query_ids, key_ids),
        rows(queries, 3),
        rows(keys, 3, seed=1),
        number(2.0),
        number(-0.5),
    )


def test_sigmoid_pairs_passes_gradcheck_with_learned_scale_and_bias() -> None:
    z1, z2 = rows(2, 4, 3)
    ids = merged_ids(4)
    assert_gradcheck(
        lambda a, b, s, c: sigmoid_pairs(a, b, logit_scale=s, logit_bias=c, ids=ids, reduction="none"),
        z1,
        z2,
        number(3.0),
        number(-1.0),
    )


def test_collapsed_pairs_cost_one_yes_and_many_no() -> None:
    same = torch.ones(5, 3, dtype=torch.float64)
    expected = math.log1p(math.exp(-(10 - 4))) + 4 * math.log1p(math.exp(10 - 4))
    assert_near(sigmoid_pairs(same, same, logit_scale=10, logit_bias=-4.0), number(expected), 1e-12)


def test_orthogonal_pairs_cost_what_the_bias_says() -> None:
    z = torch.eye(5, dtype=torch.float64)
    expected = math.log1p(math.exp(-2)) + 4 * math.log1p(math.exp(-8))
    assert_near(sigmoid_pairs(z, z, logit_scale=10, logit_bias=-8), number(expected), 1e-12)


@pytest.mark.parametrize("logit", [19.0, 20.5, 25.0, 36.0])
def test_sum_is_exact_where_softplus_turns_into_a_straight_line(logit: float) -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    total = similarity_softplus_sum(one, one, scale=logit, bias=0.0)
    torch.testing.assert_close(total, number(logit + math.log1p(math.exp(-logit))).view(1), rtol=0, atol=1e-12)
