import math

import pytest
import torch
from torch import Tensor

from nearfar.losses import reference, similarity_logsumexp, similarity_logsumexp_two_way
from nearfar.losses.engine.similarity import positive_and_logsumexp, positive_and_logsumexp_two_way
from tests.losses.agreement import (
    TILE_SIDES,
    assert_equals_reference,
    assert_gradcheck,
    assert_near,
    number,
    rows,
    tiles_of,
    value_and_gradients,
)

SCALES = [1.0, 500.0]  # below and beyond what exp bears without a maximum taken out


@pytest.mark.parametrize("scale", [*SCALES, -2.0, 0.0])
@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (2, 3), (3, 7), (7, 2)])
def test_logsumexp_equals_its_double_loop(queries: int, keys: int, with_ids: bool, scale: float) -> None:
    query_ids = torch.arange(queries) % 3 if with_ids else None
    key_ids = torch.arange(keys).flip(0) % 2 if with_ids else None
    assert_equals_reference(
        lambda q, k, s: similarity_logsumexp(q, k, scale=s, query_ids=query_ids, key_ids=key_ids),
        lambda q, k, s: reference.similarity_logsumexp(q, k, s, query_ids, key_ids),
        rows(queries, 3),
        rows(keys, 3, seed=1),
        number(scale),
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("ids", [None, [0, 1, 2, 3, 4, 5, 6], [2, -1, 2, 2, 5, -1, 7], [1] * 7, [1, 0, 0, 0, 0, 0, 0]])
def test_logsumexp_of_rows_over_themselves_equals_its_double_loop(ids: list[int] | None, scale: float) -> None:
    each = None if ids is None else torch.tensor(ids)
    assert_equals_reference(
        lambda z, s: similarity_logsumexp(z, z, scale=s, query_ids=each, key_ids=each),
        lambda z, s: reference.similarity_logsumexp(z, z, s, each, each),
        rows(7, 3),
        number(scale),
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (2, 3), (7, 5)])
def test_two_way_equals_a_double_loop_along_rows_and_one_along_columns(
    queries: int, keys: int, with_ids: bool, scale: float
) -> None:
    query_ids = torch.arange(queries) % 3 if with_ids else None
    key_ids = torch.arange(keys).flip(0) % 2 if with_ids else None
    assert_equals_reference(
        lambda q, k, s: torch.cat(similarity_logsumexp_two_way(q, k, scale=s, query_ids=query_ids, key_ids=key_ids)),
        lambda q, k, s: torch.cat(reference.similarity_logsumexp_two_way(q, k, s, query_ids, key_ids)),
        rows(queries, 3),
        rows(keys, 3, seed=1),
        number(scale),
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("way", [0, 1])
def test_either_way_alone_has_its_own_gradient(way: int, scale: float) -> None:
    assert_equals_reference(
        lambda q, k: similarity_logsumexp_two_way(q, k, scale=scale)[way],
        lambda q, k: reference.similarity_logsumexp_two_way(q, k, scale)[way],
        rows(3, 2),
        rows(4, 2, seed=1),
    )


def test_two_way_of_rows_over_themselves_is_the_same_twice() -> None:
    ids = torch.tensor([0, 1, 0, 2])
    assert_equals_reference(
        lambda z: torch.cat(similarity_logsumexp_two_way(z, z, scale=2.0, query_ids=ids, key_ids=ids)),
        lambda z: torch.cat(reference.similarity_logsumexp_two_way(z, z, 2.0, ids, ids)),
        rows(4, 3),
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("part", [0, 1, 2, None])
@pytest.mark.parametrize("ids", [None, [0, 1, 2, 3, 4], [3, -1, 3, 7, -1]])
def test_near_and_far_equal_their_loops_together_and_each_alone(
    ids: list[int] | None, part: int | None, scale: float
) -> None:
    excluded = None if ids is None else torch.tensor(ids)

    def found(q: Tensor, k: Tensor, s: Tensor) -> Tensor:
        parts = positive_and_logsumexp_two_way(q, k, scale=s, ids=excluded)
        return torch.cat(parts) if part is None else parts[part]

    def expected(q: Tensor, k: Tensor, s: Tensor) -> Tensor:
        near = torch.stack([s * reference.dot(a, b) for a, b in zip(q, k, strict=True)])
        parts = near, *reference.similarity_logsumexp_two_way(q, k, s, excluded, excluded)
        return torch.cat(parts) if part is None else parts[part]

    assert_equals_reference(found, expected, rows(5, 3), rows(5, 3, seed=1), number(scale))


@pytest.mark.parametrize("scale", SCALES)
def test_near_and_far_of_rows_with_themselves_equal_their_loops(scale: float) -> None:
    ids = torch.tensor([1, 0, 1, 2])

    def expected(z: Tensor, s: Tensor) -> Tensor:
        near = torch.stack([s * reference.dot(a, a) for a in z])
        return torch.cat([near, reference.similarity_logsumexp(z, z, s, ids, ids)])

    assert_equals_reference(
        lambda z, s: torch.cat(positive_and_logsumexp(z, z, scale=s, ids=ids)), expected, rows(4, 3), number(scale)
    )


@pytest.mark.parametrize("scale", [0.7, 1000.0])
def test_logsumexp_passes_gradcheck_with_a_learned_scale(scale: float) -> None:
    """At the large scale the features are small, so that the sums stay smooth and the other path is taken."""
    ids, key_ids = torch.tensor([0, 1, 2]), torch.tensor([1, 0, 1, 5])
    q, k = rows(3, 2), rows(4, 2, seed=1)
    if scale > 1:
        q, k = q / scale, k + 1.0  # long keys alone keep the bound above the limit of exp
        q[0] += 1.0

    def loss(q: Tensor, k: Tensor, s: Tensor) -> Tensor:
        return similarity_logsumexp(q, k, scale=s, query_ids=ids, key_ids=key_ids)

    assert_gradcheck(loss, q, k, number(scale))
    assert_gradcheck(lambda z, s: similarity_logsumexp(z, z, scale=s, query_ids=ids, key_ids=ids), q, number(scale))
    assert_gradcheck(lambda q, k, s: torch.cat(similarity_logsumexp_two_way(q, k, scale=s)), q, k, number(scale))


@pytest.mark.parametrize("side", TILE_SIDES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("symmetric", [False, True])
def test_row_without_negatives_is_minus_infinity_with_a_zero_gradient(
    symmetric: bool, scale: float, side: int | None
) -> None:
    z, s = rows(5, 3).requires_grad_(), number(scale).requires_grad_()
    for ids in (torch.ones(5, dtype=torch.long), torch.arange(5)):
        key_ids = ids if symmetric else torch.full((5,), 1)
        empty = (ids == 1) & ((key_ids == 1).all())
        with tiles_of(side):
            out = similarity_logsumexp(z, z if symmetric else z.detach(), scale=s, query_ids=ids, key_ids=key_ids)
            gradients = torch.autograd.grad(out.sum(), (z, s))
        assert torch.equal(out.isneginf(), empty)
        assert not out.isnan().any()
        assert all(g.isfinite().all() for g in gradients)
        if empty.any():
            assert torch.equal(gradients[0][empty], torch.zeros_like(gradients[0][empty]))
        if empty.all():
            assert gradients[1] == 0


@pytest.mark.parametrize("scale", SCALES)
def test_column_without_negatives_is_minus_infinity_with_a_zero_gradient(scale: float) -> None:
    q, k = rows(3, 2).requires_grad_(), rows(3, 2, seed=1).requires_grad_()
    query_ids, key_ids = torch.tensor([1, 1, 1]), torch.tensor([1, 2, 1])
    for side in TILE_SIDES:
        with tiles_of(side):
            _, columns = similarity_logsumexp_two_way(q, k, scale=scale, query_ids=query_ids, key_ids=key_ids)
            of_q, of_k = torch.autograd.grad(columns.sum(), (q, k))
        assert columns.isneginf().tolist() == [True, False, True]
        assert of_q.isfinite().all()
        assert torch.equal(of_k[[0, 2]], torch.zeros(2, 2, dtype=torch.float64))
        assert of_k[1].abs().sum() > 0


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("side", [None, 2])
def test_second_backward_through_a_retained_graph_gives_the_same_gradient(side: int | None, scale: float) -> None:
    q, k = rows(5, 3).requires_grad_(), rows(4, 3, seed=1).requires_grad_()
    with tiles_of(side):
        total = similarity_logsumexp(q, k, scale=scale).sum()
        first = torch.autograd.grad(total, (q, k), retain_graph=True)
        second = torch.autograd.grad(total, (q, k), retain_graph=True)
        third = torch.autograd.grad(total, (q, k))
    for a, b, c in zip(first, second, third, strict=True):
        assert_near(b, a, 1e-14)
        assert_near(c, a, 1e-14)


def test_result_and_inputs_survive_the_backward_pass_unchanged() -> None:
    q, k = rows(5, 3), rows(4, 3, seed=1)
    leaf = q.clone().requires_grad_()
    out = similarity_logsumexp(leaf, k, scale=2.0)
    before = out.detach().clone()
    out.sum().backward()
    assert torch.equal(out, before)
    assert torch.equal(leaf, q)
    assert torch.equal(k, rows(4, 3, seed=1))


@pytest.mark.parametrize("side", [None, 2])
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize("scale", SCALES)
def test_gradient_is_right_when_only_some_inputs_ask_for_it(
    scale: float, wanted: tuple[int, ...], side: int | None
) -> None:
    inputs = [rows(3, 2), rows(4, 2, seed=1), number(scale)]
    _, *expected = value_and_gradients(lambda q, k, s: reference.similarity_logsumexp(q, k, s), *inputs)
    leaves = [x.clone().requires_grad_(i in wanted) for i, x in enumerate(inputs)]
    with tiles_of(side):
        out = similarity_logsumexp(leaves[0], leaves[1], scale=leaves[2])
        out.backward(torch.linspace(1, 2, len(out), dtype=out.dtype))
    for i, (leaf, gradient) in enumerate(zip(leaves, expected, strict=True)):
        if i in wanted:
            assert_near(leaf.grad, gradient, 1e-10)
        else:
            assert leaf.grad is None


def test_nothing_that_asks_for_a_gradient_gives_a_plain_result() -> None:
    assert not similarity_logsumexp(rows(3, 2), rows(4, 2), scale=1.0).requires_grad


@pytest.mark.parametrize("side", [None, 2])
def test_non_contiguous_inputs_and_gradients_change_nothing(side: int | None) -> None:
    def across(q: Tensor, k: Tensor) -> Tensor:
        return similarity_logsumexp(q.T, k[:, ::2].flip(0), scale=2.0)

    with tiles_of(side):
        found = value_and_gradients(across, rows(3, 5), rows(4, 6, seed=1))
    expected = value_and_gradients(
        lambda q, k: reference.similarity_logsumexp(q.T, k[:, ::2].flip(0), 2.0), rows(3, 5), rows(4, 6, seed=1)
    )
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b, 1e-10)


@pytest.mark.parametrize("dtypes", [(torch.int32, torch.int64), (torch.int64, torch.int32), (torch.uint8, torch.int16)])
def test_ids_of_different_integer_types_are_compared_by_value(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    query_ids, key_ids = torch.tensor([3, 0, 1]), torch.tensor([1, 3, 3, 2])
    q, k = rows(3, 2), rows(4, 2, seed=1)
    mixed = similarity_logsumexp(q, k, scale=1.0, query_ids=query_ids.to(dtypes[0]), key_ids=key_ids.to(dtypes[1]))
    assert_near(mixed, reference.similarity_logsumexp(q, k, 1.0, query_ids, key_ids), 1e-10)


def test_ids_may_be_as_large_as_hashes() -> None:
    ids = torch.tensor([2**63 - 1, -(2**63), 2**63 - 1, 2**63 - 2])
    z = rows(4, 3)
    for side in TILE_SIDES:
        with tiles_of(side):
            found = similarity_logsumexp(z, z, scale=1.0, query_ids=ids, key_ids=ids)
        assert_near(found, reference.similarity_logsumexp(z, z, 1.0, ids, ids), 1e-10)


@pytest.mark.parametrize("scale", SCALES)
def test_collapsed_rows_sum_to_their_number(scale: float) -> None:
    same = torch.full((6, 4), 0.5, dtype=torch.float64)
    expected = torch.full((6,), scale + math.log(6), dtype=torch.float64)
    assert_near(similarity_logsumexp(same, same, scale=scale), expected, 1e-12)


def test_logits_far_beyond_the_range_of_exp_stay_exact() -> None:
    q, k = 100 * rows(4, 3), 100 * rows(5, 3, seed=1)
    assert_equals_reference(
        lambda q, k, s: similarity_logsumexp(q, k, scale=s), reference.similarity_logsumexp, q, k, number(50.0)
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sum_of_many_terms_near_the_range_of_exp_is_exact(sign: float) -> None:
    """e^80 is a float32, and 8,192 times that is none."""
    q, k = torch.ones(2, 1, requires_grad=True), torch.ones(8192, 1)
    found = similarity_logsumexp(q, k, scale=80.0 * sign)
    torch.testing.assert_close(found, torch.full((2,), 80.0 * sign + math.log(8192)))
    found.sum().backward()
    torch.testing.assert_close(q.grad, torch.full((2, 1), 80.0 * sign), rtol=1e-5, atol=0)
