from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.losses.agreement import assert_near, rows
from tests.losses.catalogue import ROW_LOSSES, TWO_VIEW_LOSSES


def assert_reductions_agree(loss: Callable[[str], Tensor], shape: tuple[int, ...]) -> None:
    each = loss("none")
    assert each.shape == shape
    for name, expected in (("mean", each.mean()), ("sum", each.sum())):
        assert loss(name).shape == ()
        assert_near(loss(name), expected, 1e-12)
    assert abs(each.sum().item() - each.mean().item()) > 1e-3


@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_mean_and_sum_are_those_of_the_rows_of_two_views(name: str) -> None:
    z1, z2 = rows(2, 4, 3)
    loss, _, stacked, *_ = TWO_VIEW_LOSSES[name]
    assert_reductions_agree(lambda r: loss(z1, z2, temperature=0.3, reduction=r), (8,) if stacked else (4,))


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_mean_and_sum_are_those_of_the_rows(name: str) -> None:
    z1, z2 = rows(2, 4, 3)
    assert_reductions_agree(lambda r: ROW_LOSSES[name](z1, z2, reduction=r), (4,))


@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_mean_is_the_default(name: str) -> None:
    z1, z2 = rows(2, 4, 3)
    loss = TWO_VIEW_LOSSES[name].loss
    assert torch.equal(loss(z1, z2, temperature=0.3), loss(z1, z2, temperature=0.3, reduction="mean"))
