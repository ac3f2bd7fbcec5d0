import copy

import pytest
import torch
from torch import nn

from nearfar.nn.norm import forward_in_groups


@pytest.mark.parametrize("rows", [12, 14])  # equal groups, and groups that differ by one row
@pytest.mark.parametrize("shape", [(5,), (5, 7), (5, 4, 3)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_each_group_is_normalized_by_itself(rows: int, shape: tuple[int, ...], shuffled: bool) -> None:
    torch.manual_seed(0)
    norm: nn.BatchNorm1d | nn.BatchNorm2d = nn.BatchNorm2d(5) if len(shape) == 3 else nn.BatchNorm1d(5)
    norm = norm.double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = (torch.randn(rows, *shape, dtype=torch.float64) * 3 + 1).requires_grad_()
    order = torch.randperm(rows) if shuffled else torch.arange(rows)
    alone = torch.cat([copy.deepcopy(norm)(part) for part in x[order].tensor_split(4)])[order.argsort()]
    found = forward_in_groups(norm, x, 4, order if shuffled else None)
    torch.testing.assert_close(found, alone)
    weight = torch.randn_like(alone)
    gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (found, alone)]
    torch.testing.assert_close(*gradients)
    assert norm.num_batches_tracked == 4


def test_groups_move_the_running_statistics_as_much_as_one_batch() -> None:
    norm = nn.BatchNorm1d(1)
    x = torch.tensor([0.0, 2.0]).repeat(8)[:, None] + 4  # every group has the same mean
    forward_in_groups(norm, x, 4)
    torch.testing.assert_close(norm.running_mean, torch.tensor([0.5]))  # 0.1 of 5
    assert norm.momentum == 0.1
