import copy

import pytest
import torch
from torch import nn

from nearfar.nn.norm import SplitBatchNorm1d, SplitBatchNorm2d, in_groups, split_batch_norm
from tests.support.facts import facts


@pytest.mark.parametrize("rows", [12, 14])  # whole groups, and groups that differ by one
@pytest.mark.parametrize("shape", [(5,), (5, 7), (5, 4, 3)])
def test_each_group_is_normalised_by_itself(rows: int, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain: nn.BatchNorm1d | nn.BatchNorm2d = nn.BatchNorm2d(5) if len(shape) == 3 else nn.BatchNorm1d(5)
    nn.init.normal_(plain.weight)
    nn.init.normal_(plain.bias)
    split = split_batch_norm(copy.deepcopy(plain), 4)
    assert isinstance(split, SplitBatchNorm2d if len(shape) == 3 else SplitBatchNorm1d)
    x = torch.randn(rows, *shape) * 3 + 1
    parts, means, variances = [], [], []
    for part in x.tensor_split(4):
        alone = copy.deepcopy(plain)
        parts.append(alone(part))
        means.append(alone.running_mean)
        variances.append(alone.running_var)
    torch.testing.assert_close(split(x), torch.cat(parts))
    torch.testing.assert_close(split.running_mean, torch.stack(means).mean(0))
    torch.testing.assert_close(split.running_var, torch.stack(variances).mean(0))
    assert split.num_batches_tracked == 1


def test_evaluation_is_plain_batch_norm_and_state_dicts_fit() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2), nn.BatchNorm1d(2))
    split = split_batch_norm(copy.deepcopy(plain), 2)
    split(torch.randn(6, 3, 4, 4))
    plain.load_state_dict(split.state_dict())
    x = torch.randn(6, 3, 4, 4)
    assert torch.equal(split.eval()(x), plain.eval()(x))


def test_gradients_equal_those_of_the_groups_alone() -> None:
    torch.manual_seed(0)
    norm, split = nn.BatchNorm1d(3).double(), SplitBatchNorm1d(3, 2).double()
    x = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(8, 3, dtype=torch.float64)
    (expected,) = torch.autograd.grad((in_groups(norm, x, 2) * weight).sum(), x)
    (found,) = torch.autograd.grad((split(x) * weight).sum(), x)
    torch.testing.assert_close(found, expected)


def test_a_small_batch_is_split_into_fewer() -> None:
    assert SplitBatchNorm1d(3, 8)(torch.randn(5, 3)).isfinite().all()


def test_groups_move_the_running_statistics_as_much_as_one_batch() -> None:
    norm = nn.BatchNorm1d(1)
    x = torch.tensor([0.0, 2.0]).repeat(8)[:, None] + 4  # every group has the same mean
    in_groups(norm, x, 4)
    torch.testing.assert_close(norm.running_mean, torch.tensor([0.5]))  # 0.1 of 5
    assert norm.momentum == 0.1


def test_the_number_of_splits() -> None:
    with pytest.raises(ValueError, match=facts("splits 0")):
        SplitBatchNorm2d(3, 0)
    with pytest.raises(ValueError, match=facts("(B, C, H, W)")):
        SplitBatchNorm2d(3, 2)(torch.randn(4, 3))
