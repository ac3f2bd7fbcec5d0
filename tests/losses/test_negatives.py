import math

import pytest
import torch

from nearfar.losses import debiased, hard_negative, nt_xent, top_k_info_nce
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows
from tests.losses.catalogue import TWO_VIEW_LOSSES, merged_ids

NAMES = [name for name in TWO_VIEW_LOSSES if name.startswith(("debiased", "hard_negative", "top_k"))]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 3, 7])
@pytest.mark.parametrize("temperature", [0.07, 0.5, 10.0])
@pytest.mark.parametrize("name", NAMES)
def test_loss_equals_the_authors_sum_over_negatives(name: str, temperature: float, batch: int, merged: bool) -> None:
    loss, reference, *_, fewest = TWO_VIEW_LOSSES[name]
    batch = max(batch, fewest)
    ids = merged_ids(batch) if merged else None
    assert_equals_reference(
        lambda z1, z2, t: loss(z1, z2, temperature=t, ids=ids, reduction="none"),
        lambda z1, z2, t: reference(z1, z2, t, ids),
        *rows(2, batch, 3),
        number(temperature),
    )


@pytest.mark.parametrize("name", NAMES)
def test_loss_passes_gradcheck_with_a_learned_temperature(name: str) -> None:
    z1, z2 = rows(2, 4, 3)
    ids, loss = merged_ids(4), TWO_VIEW_LOSSES[name].loss
    assert_gradcheck(lambda a, b, t: loss(a, b, temperature=t, ids=ids, reduction="none"), z1, z2, number(0.3))


def test_debiased_estimate_never_falls_below_what_opposite_vectors_would_sum_to() -> None:
    """Twins alike and negatives opposite: the estimate would be negative, the floor N e^{-1/t} holds."""
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    temperature = number(0.5).requires_grad_()
    loss = debiased(z, z, temperature=temperature, positive_prior=0.1)
    assert_near(loss.detach(), number(math.log1p(2 * math.exp(-4))), 1e-12)
    (gradient,) = torch.autograd.grad(loss, temperature)
    # d/dt log(1 + 2 e^{-2/t}) at t = 1/2
    assert_near(gradient, number(2 * math.exp(-4) / (1 + 2 * math.exp(-4)) * 2 / 0.5**2), 1e-12)


def test_debiased_collapsed_embeddings_cost_the_logarithm_of_the_choices() -> None:
    same = torch.ones(4, 3, dtype=torch.float64)
    assert_near(debiased(same, same, temperature=0.2, positive_prior=0.3), number(math.log(7)), 1e-10)


def test_prior_of_zero_and_beta_of_zero_are_nt_xent() -> None:
    z1, z2 = rows(2, 5, 3)
    plain = nt_xent(z1, z2, temperature=0.2, reduction="none")
    assert_near(debiased(z1, z2, temperature=0.2, positive_prior=0.0, reduction="none"), plain, 1e-12)
    assert_near(hard_negative(z1, z2, temperature=0.2, beta=0.0, reduction="none"), plain, 1e-12)
    assert_near(top_k_info_nce(z1, z2, temperature=0.2, k=8, reduction="none"), plain, 1e-12)


def test_large_beta_leaves_the_hardest_negative_as_many_times_as_there_are_negatives() -> None:
    z1, z2 = rows(2, 4, 3)
    hardest = top_k_info_nce(z1, z2, temperature=0.5, k=1, reduction="none")
    focused = hard_negative(z1, z2, temperature=0.5, beta=500.0, reduction="none")
    assert_near(focused, torch.log1p(6 * hardest.expm1()), 1e-6)


def test_top_k_loss_grows_with_k_up_to_nt_xent() -> None:
    z1, z2 = rows(2, 4, 3)
    by_k = [top_k_info_nce(z1, z2, temperature=0.5, k=k).item() for k in range(1, 7)]
    assert by_k == sorted(by_k)
    assert by_k[0] < by_k[-1] == pytest.approx(nt_xent(z1, z2, temperature=0.5).item(), rel=1e-12)
