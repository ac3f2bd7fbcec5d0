import math

import pytest
import torch

from nearfar.losses import decoupled, info_nce, nt_xent, symmetric_info_nce
from nearfar.losses.info_nce import info_nce_reference
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows
from tests.losses.catalogue import TWO_VIEW_LOSSES, merged_ids

NAMES = ["info_nce", "info_nce, dot", "info_nce, euclidean", "nt_xent", "decoupled", "symmetric_info_nce"]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 3, 7])
@pytest.mark.parametrize("temperature", [0.07, 0.5, 10.0])
@pytest.mark.parametrize("name", NAMES)
def test_loss_of_two_views_equals_the_papers_double_loop(
    name: str, temperature: float, batch: int, merged: bool
) -> None:
    loss, reference, *_ = TWO_VIEW_LOSSES[name]
    ids = merged_ids(batch) if merged else None
    assert_equals_reference(
        lambda z1, z2, t: loss(z1, z2, temperature=t, ids=ids, reduction="none"),
        lambda z1, z2, t: reference(z1, z2, t, ids),
        *rows(2, batch, 3),
        number(temperature),
    )


@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize(("batch", "queue"), [(1, 1), (3, 7), (7, 2)])
def test_info_nce_with_a_queue_equals_mocos_loop(batch: int, queue: int, similarity: str, with_ids: bool) -> None:
    ids = torch.arange(batch) % 3 if with_ids else None
    negative_ids = torch.arange(queue) % 4 if with_ids else None
    for temperature in (0.07, 1.0):
        assert_equals_reference(
            lambda q, p, n, t: info_nce(
                q, p, n, temperature=t, ids=ids, negative_ids=negative_ids, similarity=similarity, reduction="none"
            ),
            lambda q, p, n, t: info_nce_reference(q, p, n, t, ids, negative_ids, similarity),
            *rows(2, batch, 3),
            rows(queue, 3, seed=1),
            number(temperature),
        )


@pytest.mark.parametrize("name", NAMES)
def test_loss_of_two_views_passes_gradcheck_with_a_learned_temperature(name: str) -> None:
    z1, z2 = rows(2, 4, 3)
    ids = merged_ids(4)
    loss = TWO_VIEW_LOSSES[name].loss
    assert_gradcheck(lambda a, b, t: loss(a, b, temperature=t, ids=ids, reduction="none"), z1, z2, number(0.3))


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_info_nce_with_a_queue_passes_gradcheck(similarity: str) -> None:
    q, p = rows(2, 3, 2)
    assert_gradcheck(
        lambda q, p, n, t: info_nce(q, p, n, temperature=t, similarity=similarity),
        q,
        p,
        rows(5, 2, seed=1),
        number(0.4),
    )


@pytest.mark.parametrize("temperature", [0.01, 0.5, 10.0])
@pytest.mark.parametrize("batch", [1, 2, 5, 300])
def test_collapsed_embeddings_cost_the_logarithm_of_the_choices(batch: int, temperature: float) -> None:
    same = torch.ones(batch, 3, dtype=torch.float64)
    assert_near(nt_xent(same, same, temperature=temperature), number(math.log(2 * batch - 1)), 1e-10)
    assert_near(symmetric_info_nce(same, same, temperature=temperature), number(math.log(batch)), 1e-10)
    assert_near(info_nce(same, same, temperature=temperature), number(math.log(batch)), 1e-10)
    queue = torch.ones(9, 3, dtype=torch.float64)
    assert_near(info_nce(same, same, queue, temperature=temperature), number(math.log(10)), 1e-10)
    if batch > 1:
        assert_near(decoupled(same, same, temperature=temperature), number(math.log(2 * batch - 2)), 1e-10)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_orthogonal_samples_cost_what_their_exponentials_say(temperature: float) -> None:
    z = torch.eye(5, dtype=torch.float64)
    unlike = math.exp(-1 / temperature)
    assert_near(nt_xent(z, z, temperature=temperature), number(math.log1p(8 * unlike)), 1e-12)
    assert_near(symmetric_info_nce(z, z, temperature=temperature), number(math.log1p(4 * unlike)), 1e-12)
    assert_near(info_nce(z, z, temperature=temperature), number(math.log1p(4 * unlike)), 1e-12)
    assert_near(decoupled(z, z, temperature=temperature), number(math.log(8) - 1 / temperature), 1e-12)
    # squared distance 2 to each negative, 0 to the positive
    euclidean = info_nce(z, z, temperature=temperature, similarity="euclidean")
    assert_near(euclidean, number(math.log1p(4 * unlike**2)), 1e-12)


def test_random_embeddings_start_near_the_logarithm_of_the_choices() -> None:
    z1, z2 = rows(2, 512, 256)
    assert abs(nt_xent(z1, z2, temperature=0.5).item() - math.log(2 * 512 - 1)) < 0.02
    assert abs(symmetric_info_nce(z1, z2, temperature=0.5).item() - math.log(512)) < 0.02


def test_gradient_in_the_logits_is_the_softmax_less_the_target() -> None:
    """∂L/∂s⁺ = P⁺ - 1 and ∂L/∂s⁻ = P⁻, read off one-hot queries, whose inner products are the keys' entries."""
    query = torch.eye(1, 3, dtype=torch.float64)
    positive, negatives = rows(1, 3).requires_grad_(), rows(4, 3, seed=1).requires_grad_()
    info_nce(query, positive, negatives, temperature=1.0, similarity="dot").backward()
    logits = torch.cat([positive, negatives])[:, 0].detach()
    p = logits.exp() / logits.exp().sum()
    assert_near(positive.grad[:, 0], p[:1] - 1, 1e-12)
    assert_near(negatives.grad[:, 0], p[1:], 1e-12)


def test_tiny_temperature_looks_at_the_hardest_negative_alone_and_a_huge_one_at_all_alike() -> None:
    query, positive, queue = rows(1, 3), rows(1, 3, seed=1), rows(6, 3, seed=2).requires_grad_()
    for temperature in (0.01, 1000.0):
        grad = torch.autograd.grad(info_nce(query, positive, queue, temperature=temperature, similarity="dot"), queue)[
            0
        ]
        share = grad.norm(dim=1) / grad.norm(dim=1).sum()
        if temperature < 1:
            assert share.argmax() == (queue @ query.T).argmax()
            assert share.max() > 0.999
        else:
            assert_near(share, torch.full_like(share, 1 / 6), 0.01)


def test_queue_as_large_as_the_batch_of_positives_is_the_in_batch_loss_plus_the_positive_twice() -> None:
    q, p = rows(2, 4, 3)
    ids = torch.arange(4)
    in_batch = info_nce(q, p, temperature=0.2, reduction="none")
    queued = info_nce(q, p, p, temperature=0.2, ids=ids, negative_ids=ids, reduction="none")
    assert_near(queued, in_batch, 1e-12)


def test_decoupled_is_the_part_of_nt_xent_without_the_positive() -> None:
    z1, z2 = rows(2, 5, 3)
    coupled = nt_xent(z1, z2, temperature=0.2, reduction="none")
    free = decoupled(z1, z2, temperature=0.2, reduction="none")
    assert_near(torch.log1p(free.exp()), coupled, 1e-10)


@pytest.mark.parametrize("gap", [19.0, 20.5, 25.0, 36.0])
def test_loss_is_exact_where_softplus_turns_into_a_straight_line(gap: float) -> None:
    """torch's softplus drops log(1 + e^-x) from 20 on: an error of 2e-9, twenty times what is promised."""
    query = torch.ones(1, 1, dtype=torch.float64)
    assert_equals_reference(
        lambda p, n: info_nce(query.to(p), p, n, temperature=1.0, similarity="dot", reduction="none"),
        lambda p, n: info_nce_reference(query, p, n, 1.0, similarity="dot"),
        torch.zeros_like(query),
        gap * query,
    )


def test_one_tensor_as_query_and_positive_has_the_gradient_of_both() -> None:
    for similarity in ("cosine", "dot", "euclidean"):
        assert_equals_reference(
            lambda z, s=similarity: info_nce(z, z, temperature=0.7, similarity=s, reduction="none"),
            lambda z, s=similarity: info_nce_reference(z, z, None, 0.7, similarity=s),
            rows(5, 3),
        )


def test_distances_far_from_the_origin_keep_their_digits() -> None:
    """|q|² - 2qk + |k|² at 1,000 from the origin would leave float32 one digit."""
    z1, z2 = (1000 + rows(2, 6, 3)).float()
    expected = info_nce_reference(z1.double(), z2.double(), None, 0.5, similarity="euclidean")
    found = info_nce(z1, z2, temperature=0.5, similarity="euclidean", reduction="none")
    assert_near(found, expected, 1e-4)
    squares = z1.square().sum(1)[:, None] - 2 * z1 @ z2.T + z2.square().sum(1)
    careless = (-squares / 0.5).logsumexp(1) + squares.diagonal() / 0.5
    assert (careless - expected).abs().max() > 0.1
