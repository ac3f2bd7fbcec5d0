import math

import pytest
import torch

from nearfar.losses import nt_xent, sup_con
from nearfar.losses.supervised import sup_con_reference
from tests.losses.agreement import (
    assert_equals_reference,
    assert_gradcheck,
    assert_near,
    number,
    rows,
    value_and_gradients,
)

LABELS = {"all alone": [0], "a pair": [4, 4], "one alone": [1, 0, 1], "three classes": [2, -1, 2, 2, 5, -1, 7]}


@pytest.mark.parametrize("temperature", [0.07, 0.5, 10.0])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_sup_con_equals_the_papers_sums_over_positives(labels: list[int], temperature: float) -> None:
    classes = torch.tensor(labels)
    assert_equals_reference(
        lambda z, t: sup_con(z, classes, temperature=t, reduction="none"),
        lambda z, t: sup_con_reference(z, classes, t).nan_to_num(0.0),
        rows(len(labels), 3),
        number(temperature),
    )


def test_sup_con_passes_gradcheck_with_a_learned_temperature() -> None:
    labels = torch.tensor([0, 1, 0, 2, 1])
    assert_gradcheck(lambda z, t: sup_con(z, labels, temperature=t, reduction="none"), rows(5, 3), number(0.3))


def test_mean_leaves_out_rows_alone_in_their_class() -> None:
    labels = torch.tensor([2, -1, 2, 2, 5, -1, 7])
    z = rows(7, 3)
    each = sup_con_reference(z, labels, 0.2)
    assert_near(sup_con(z, labels, temperature=0.2), each[~each.isnan()].mean(), 1e-10)
    assert_near(sup_con(z, labels, temperature=0.2, reduction="sum"), each.nansum(), 1e-10)
    assert abs(sup_con(z, labels, temperature=0.2).item() - each.nan_to_num(0.0).mean().item()) > 0.1


def test_batch_without_a_positive_costs_nothing_and_has_a_zero_gradient() -> None:
    z = rows(3, 2).requires_grad_()
    loss = sup_con(z, torch.arange(3), temperature=0.1)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_labels_of_two_views_each_make_it_nt_xent() -> None:
    z1, z2 = rows(2, 5, 3)
    labels = torch.arange(5).repeat(2)
    expected = nt_xent(z1, z2, temperature=0.2, reduction="none")
    assert_near(sup_con(torch.cat([z1, z2]), labels, temperature=0.2, reduction="none"), expected, 1e-10)


def test_collapsed_embeddings_cost_the_logarithm_of_the_others() -> None:
    same = torch.ones(6, 3, dtype=torch.float64)
    assert_near(sup_con(same, torch.arange(6) % 2, temperature=0.1), number(math.log(5)), 1e-10)


@pytest.mark.parametrize("temperature", [0.03, 0.05, 0.1])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_near_its_end_a_pair_is_as_exact_in_float32_as_any(noise: float, temperature: float) -> None:
    """What is left of the loss may be 1e-11: its value and gradient, not rounding. Float64's loops err by 1e-14."""
    labels = torch.arange(8).repeat(2)
    z = rows(8, 128).repeat(2, 1) + noise * rows(16, 128, seed=1)
    expected = value_and_gradients(lambda z: sup_con_reference(z, labels, temperature), z)
    found = value_and_gradients(lambda z: sup_con(z, labels, temperature=temperature, reduction="none"), z.float())
    for a, b in zip(found, expected, strict=True):
        assert float((a.double() - b).norm() / b.norm()) < 2e-3


def test_pairs_beside_larger_classes_near_their_end() -> None:
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3])
    z = rows(4, 64)[labels] + 0.05 * rows(8, 64, seed=1)
    expected = sup_con_reference(z, labels, 0.05).nan_to_num(0.0)
    found = sup_con(z.float(), labels, temperature=0.05, reduction="none").double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
