import math

import pytest
import torch

from nearfar.losses import debiased, guided_info_nce, hard_negative, info_nce, nt_xent, tile_size, top_k_info_nce
from nearfar.losses.engine.backends import DenseBackend, use_backend
from nearfar.losses.negatives import guided_info_nce_reference
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows
from tests.losses.catalogue import TWO_VIEW_LOSSES, merged_ids
from tests.losses.watch import watched
from tests.support.facts import facts

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


@pytest.mark.parametrize("margins", [(0.0, 0.0), (0.3, 0.0), (0.0, 0.5)])
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("extra", [0, 4])
def test_a_guide_leaves_out_what_it_finds_nearer_than_the_positive(
    extra: int, merged: bool, margins: tuple[float, float]
) -> None:
    batch = 6
    margin, relative = margins
    guides = [*rows(2, batch, 4, seed=3), rows(batch + extra, 4, seed=4)][: 3 if extra else 2]
    ids = merged_ids(batch) if merged else torch.arange(batch)
    options = {"guides": guides, "margin": margin, "relative_margin": relative, "ids": ids}
    inputs = [*rows(2, batch, 3), number(0.3)]
    if extra:
        inputs.insert(2, rows(batch + extra, 3, seed=1))
        options["negative_ids"] = torch.cat([ids, torch.arange(100, 100 + extra)])
    assert_equals_reference(
        lambda *x: guided_info_nce(*x[:-1], temperature=x[-1], reduction="none", **options),
        lambda *x: guided_info_nce_reference(*x[:-1], temperature=x[-1], **options),
        *inputs,
    )
    with use_backend(DenseBackend()):
        dense = guided_info_nce(*inputs[:-1], temperature=0.3, **options)
    assert_near(guided_info_nce(*inputs[:-1], temperature=0.3, **options), dense, 1e-12)


def test_a_guide_that_excludes_nothing_gives_info_nce_and_one_that_excludes_all_gives_nothing() -> None:
    z1, z2 = rows(2, 5, 3)
    same, apart = torch.ones(5, 2), torch.eye(5)
    plain = info_nce(z1, z2, temperature=0.2, reduction="none")
    assert_near(
        guided_info_nce(z1, z2, guides=(apart, apart), margin=0.0, temperature=0.2, reduction="none"), plain, 1e-12
    )
    query = z1.clone().requires_grad_()
    loss = guided_info_nce(query, z2, guides=(same, same), margin=0.1, temperature=0.2)
    loss.backward()
    assert loss == 0 and (query.grad == 0).all()


def test_a_guided_loss_has_no_gradient_in_the_guide_and_passes_gradcheck() -> None:
    guides = [x.requires_grad_() for x in rows(2, 5, 4, seed=3).unbind()]
    assert_gradcheck(
        lambda a, b, t: guided_info_nce(a, b, guides=guides, margin=0.0, temperature=t, reduction="none"),
        *rows(2, 5, 3),
        number(0.3),
    )
    z1, z2 = (x.requires_grad_() for x in rows(2, 5, 3).unbind())
    guided_info_nce(z1, z2, guides=guides, margin=0.0, temperature=0.3).backward()
    assert guides[0].grad is None


def test_a_guided_loss_holds_no_matrix() -> None:
    z1, z2, g1, g2 = rows(4, 512, 8, dtype=torch.float32)
    with tile_size(32):
        seen = watched(lambda a, b: guided_info_nce(a, b, guides=(g1, g2), margin=0.0, temperature=0.1), z1, z2)
    assert seen.largest < 512 * 512 / 8


def test_guides_of_other_numbers_of_rows_are_refused() -> None:
    z1, z2 = rows(2, 5, 3)
    with pytest.raises(ValueError, match=facts("guides [5, 4] [5, 5]")):
        guided_info_nce(z1, z2, guides=(z1, z2[:4]), margin=0.0, temperature=0.3)
    with pytest.raises(ValueError, match=facts("margin -1")):
        guided_info_nce(z1, z2, guides=(z1, z2), margin=-1, temperature=0.3)
