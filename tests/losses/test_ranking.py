import math

import pytest
import torch
from torch import Tensor

from nearfar.losses import cosent
from nearfar.losses.ranking import cosent_reference
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows
from tests.support.facts import facts

SCORES = torch.tensor([3.0, 1.0, 3.0, 0.0, 5.0, 1.0, 2.5])


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_cosent_equals_the_papers_double_loop(batch: int, temperature: float) -> None:
    scores = SCORES[:batch]
    assert_equals_reference(
        lambda a, b, t: cosent(a, b, scores, temperature=t),
        lambda a, b, t: cosent_reference(a, b, scores, t),
        *rows(2, batch, 3),
        number(temperature),
        sides=[None],
    )


def test_cosent_passes_gradcheck_with_ties_and_a_learned_temperature() -> None:
    assert_gradcheck(lambda a, b, t: cosent(a, b, SCORES, temperature=t), *rows(2, 7, 3), number(0.3))


def test_only_the_order_of_scores_counts() -> None:
    z1, z2 = rows(2, 7, 3)
    plain = cosent(z1, z2, SCORES, temperature=0.05)
    assert_near(cosent(z1, z2, SCORES.exp().long() * 10, temperature=0.05), plain, 1e-12)
    order = torch.tensor([4, 2, 0, 6, 1, 3, 5])
    assert_near(cosent(z1[order], z2[order], SCORES[order], temperature=0.05), plain, 1e-12)


def test_equal_scores_cost_nothing_and_equal_cosines_the_logarithm_of_the_comparisons() -> None:
    z1, z2 = (x.requires_grad_() for x in rows(2, 5, 3).unbind())
    loss = cosent(z1, z2, torch.ones(5), temperature=0.05)
    loss.backward()
    assert loss == 0 and (z1.grad == 0).all() and (z2.grad == 0).all()
    same = torch.ones(6, 2, dtype=torch.float64)
    assert_near(cosent(same, same, torch.arange(6), temperature=0.05), number(math.log(1 + 15)), 1e-12)


def extreme(temperature: float, dtype: torch.dtype) -> Tensor:
    z1, z2 = rows(2, 7, 3, dtype=dtype)
    return cosent(z1, z2, SCORES, temperature=temperature)


def test_low_temperatures_and_half_precision_stay_finite() -> None:
    assert extreme(1e-3, torch.float32).isfinite() and extreme(100.0, torch.float32).isfinite()
    half = extreme(0.05, torch.float16)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, extreme(0.05, torch.float32), rtol=1e-2, atol=0)


def test_scores_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=facts("scores (3,) (7,)")):
        cosent(*rows(2, 7, 3), SCORES[:3], temperature=0.05)
