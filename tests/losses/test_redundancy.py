import pytest
import torch

from nearfar.losses import barlow_twins, vicreg
from nearfar.losses.redundancy import barlow_twins_reference, vicreg_reference
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows


@pytest.mark.parametrize("batch", [2, 3, 7])
@pytest.mark.parametrize("weight", [0.0, 0.0051, 1.0])
def test_barlow_twins_equals_the_papers_sum_over_features(weight: float, batch: int) -> None:
    assert_equals_reference(
        lambda z1, z2: barlow_twins(z1, z2, redundancy_weight=weight),
        lambda z1, z2: barlow_twins_reference(z1, z2, weight),
        *rows(2, batch, 4),
        sides=[None],
    )


@pytest.mark.parametrize("batch", [2, 3, 7])
@pytest.mark.parametrize("weights", [(25.0, 25.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)])
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_vicreg_equals_the_papers_three_terms(spread: float, weights: tuple[float, float, float], batch: int) -> None:
    invariance, variance, covariance = weights
    assert_equals_reference(
        lambda z1, z2: vicreg(
            z1, z2, invariance_weight=invariance, variance_weight=variance, covariance_weight=covariance
        ),
        lambda z1, z2: vicreg_reference(z1, z2, invariance, variance, covariance),
        *(spread * rows(2, batch, 3)),
        sides=[None],
    )


def test_default_weights_are_the_papers() -> None:
    z1, z2 = rows(2, 5, 3)
    assert_near(barlow_twins(z1, z2), barlow_twins_reference(z1, z2, 0.0051), 1e-10)
    assert_near(vicreg(z1, z2), vicreg_reference(z1, z2, 25.0, 25.0, 1.0), 1e-10)


def test_losses_on_statistics_pass_gradcheck() -> None:
    z1, z2 = 0.6 * rows(2, 5, 3)
    assert_gradcheck(lambda a, b: barlow_twins(a, b, redundancy_weight=0.5), z1, z2)
    assert_gradcheck(vicreg, z1, z2)


def test_equal_views_with_uncorrelated_features_cost_barlow_twins_next_to_nothing() -> None:
    z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    assert 0 < barlow_twins(z, z).item() < 1e-9  # what the 1e-5 beside the variance leaves
    assert_near(barlow_twins(z, -z), number(8.0), 1e-4)


def test_collapsed_embeddings_cost_vicreg_the_whole_deviation() -> None:
    same = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    loss = vicreg(same, same)
    loss.backward()
    assert_near(loss.detach(), number(25 * (1 - 0.01)), 1e-12)
    assert same.grad.isfinite().all()
