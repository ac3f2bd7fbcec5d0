import pytest
import torch
from torch import nn

from nearfar.nn.heads import predictor, projector
from tests.support.facts import facts


def kinds(head: nn.Sequential) -> list[str]:
    return [type(part).__name__ for part in head]


def test_the_papers_variants() -> None:
    hidden = ["Linear", "BatchNorm1d", "ReLU"]
    assert kinds(projector(8, 16, 4)) == [*hidden, "Linear"]  # BYOL
    assert kinds(projector(8, 16, 4, layers=3)) == [*hidden, *hidden, "Linear"]  # Barlow Twins, VICReg
    assert kinds(projector(8, 16, 4, layers=3, last_batch_norm=True)) == [*hidden, *hidden, "Linear", "BatchNorm1d"]
    assert kinds(projector(8, 16, 4, batch_norm=False)) == ["Linear", "ReLU", "Linear"]  # MoCo v2
    assert kinds(projector(8, 16, 4, layers=1)) == ["Linear"]  # MoCo v1, InstDisc
    assert kinds(predictor(8, 2)) == [*hidden, "Linear"]


def test_a_bias_only_where_no_batch_norm_follows() -> None:
    head = projector(8, 16, 4, last_batch_norm=True, last_affine=False)
    assert head[0].bias is None and head[3].bias is None and head[4].weight is None
    assert projector(8, 16, 4)[-1].bias is not None


def test_shapes() -> None:
    assert projector(8, 16, 4, layers=3)(torch.randn(5, 8)).shape == (5, 4)
    assert predictor(8, 2)(torch.randn(5, 8)).shape == (5, 8)
    assert predictor(8, 2, 3)(torch.randn(5, 8)).shape == (5, 3)
    with pytest.raises(ValueError, match=facts("layers 0")):
        projector(8, 16, 4, layers=0)
