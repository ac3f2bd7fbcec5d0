import pytest
import torch

from nearfar.losses import cosine_regression
from nearfar.losses.regression import cosine_regression_reference
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_cosine_regression_equals_the_papers_squared_distance(batch: int) -> None:
    assert_equals_reference(
        lambda p, z: cosine_regression(p, z, reduction="none"),
        cosine_regression_reference,
        *rows(2, batch, 3),
        sides=[None],
    )


def test_cosine_regression_passes_gradcheck_in_the_prediction() -> None:
    p, z = rows(2, 3, 3)
    assert_gradcheck(lambda p: cosine_regression(p, z, reduction="none"), p)


def test_target_receives_no_gradient() -> None:
    p, z = (x.requires_grad_() for x in rows(2, 3, 3).unbind())
    cosine_regression(p, z).backward()
    assert p.grad.abs().sum() > 0
    assert z.grad is None


@pytest.mark.parametrize(("other", "expected"), [([2.0, 0.0], 0.0), ([0.0, 3.0], 2.0), ([-0.5, 0.0], 4.0)])
def test_equal_orthogonal_and_opposite_rows_cost_zero_two_and_four(other: list[float], expected: float) -> None:
    p, z = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([other], dtype=torch.float64)
    assert_near(cosine_regression(p, z), number(expected), 1e-12)
