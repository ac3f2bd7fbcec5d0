import pytest
import torch

from nearfar.losses import batch_triplet, triplet
from nearfar.losses.margin import batch_triplet_reference, triplet_reference
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows

LABELS = {
    "one row": [0],
    "no positive": [0, 1],
    "no negative": [3, 3, 3],
    "one alone": [1, 0, 1],
    "three classes": [2, -1, 2, 2, 5, -1, 7],
}


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("batch", [1, 2, 3, 7])
@pytest.mark.parametrize("margin", [0.0, 0.2, 1.0])
def test_triplet_equals_the_papers_formula(margin: float, batch: int, distance: str) -> None:
    assert_equals_reference(
        lambda a, p, n: triplet(a, p, n, margin=margin, distance=distance, reduction="none"),
        lambda a, p, n: triplet_reference(a, p, n, margin, distance),
        *rows(3, batch, 3),
        sides=[None],
    )


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("mining", ["hard", "semi-hard", "all"])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_batch_triplet_equals_the_triple_loop(labels: list[int], mining: str, distance: str) -> None:
    classes = torch.tensor(labels)
    for margin in (0.0, 0.3, 2.0):
        assert_equals_reference(
            lambda z, m=margin: batch_triplet(z, classes, margin=m, mining=mining, distance=distance),
            lambda z, m=margin: batch_triplet_reference(z, classes, m, mining, distance),
            rows(len(labels), 3),
            sides=[None],
        )


@pytest.mark.parametrize("mining", ["hard", "semi-hard", "all"])
def test_batch_triplet_equals_the_triple_loop_on_a_larger_batch(mining: str) -> None:
    labels = torch.arange(20) % 4
    assert_equals_reference(
        lambda z: batch_triplet(z, labels, margin=0.3, mining=mining),
        lambda z: batch_triplet_reference(z, labels, 0.3, mining),
        rows(20, 2),
        sides=[None],
    )


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_margin_losses_pass_gradcheck(distance: str) -> None:
    a, p, n = rows(3, 4, 3)
    assert_gradcheck(lambda a, p, n: triplet(a, p, n, margin=0.5, distance=distance, reduction="none"), a, p, n)
    labels = torch.tensor([0, 1, 0, 2, 1, 0])
    for mining in ("hard", "semi-hard", "all"):
        assert_gradcheck(
            lambda z, mining=mining: batch_triplet(z, labels, margin=0.5, mining=mining, distance=distance), rows(6, 3)
        )


@pytest.mark.parametrize("mining", ["hard", "semi-hard", "all"])
@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_collapsed_embeddings_cost_the_margin_with_a_finite_gradient(mining: str, distance: str) -> None:
    same = torch.ones(6, 3, dtype=torch.float64, requires_grad=True)
    loss = batch_triplet(same, torch.arange(6) % 2, margin=0.4, mining=mining, distance=distance)
    loss.backward()
    assert_near(loss.detach(), number(0.4), 1e-12)
    assert same.grad.isfinite().all()


def test_batch_without_a_triplet_costs_nothing_and_can_still_be_differentiated() -> None:
    for labels in ([0, 1, 2], [0, 0, 0]):
        z = rows(3, 2).requires_grad_()
        loss = batch_triplet(z, torch.tensor(labels), margin=0.4)
        loss.backward()
        assert loss.item() == 0.0
        assert torch.equal(z.grad, torch.zeros_like(z))


def test_mean_over_all_triplets_counts_only_those_that_cost() -> None:
    """On a line: from 0 the positive at 1, negatives at 1.2 and 9; only the first costs, 1 - 1.2 + 0.5."""
    z = torch.tensor([[0.0], [1.0], [1.2], [9.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 2])
    # anchor 1: positive at 1, negative at 0.2 costs 1.3; the other negative at 8 costs nothing
    assert_near(batch_triplet(z, labels, margin=0.5, mining="all"), number((0.3 + 1.3) / 2), 1e-12)
    # each anchor's hardest triplet is the same one here
    assert_near(batch_triplet(z, labels, margin=0.5, mining="hard"), number((0.3 + 1.3) / 2), 1e-12)
    # beyond anchor 1's positive lies only the negative at 8
    assert_near(batch_triplet(z, labels, margin=0.5, mining="semi-hard"), number((0.3 + 0.0) / 2), 1e-12)


def test_negative_exactly_as_far_as_the_positive_is_not_semi_hard() -> None:
    z = torch.tensor([[0.0], [1.0], [-1.0], [3.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 2])
    # from 0 the negative at -1 ties with the positive, so the one at 3 is taken and costs nothing; a tie would cost 0.5
    assert batch_triplet(z, labels, margin=0.5, mining="semi-hard").item() == 0.0
    assert_near(batch_triplet_reference(z, labels, 0.5, "semi-hard"), number(0.0), 1e-12)
