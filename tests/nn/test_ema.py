import copy

import pytest
import torch
from torch import nn

from nearfar.nn.ema import cosine_momentum, ema_distance, ema_update, frozen_copy
from tests.support.facts import facts


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_a_copy_shares_nothing_and_freezes_nothing() -> None:
    source = network()
    target = frozen_copy(source)
    shared = {t.data_ptr() for t in (*source.parameters(), *source.buffers())}
    assert not any(t.data_ptr() in shared for t in (*target.parameters(), *target.buffers()))
    assert all(p.requires_grad for p in source.parameters())
    assert not any(p.requires_grad for p in target.parameters())
    assert source[1].momentum == 0.1


def test_a_copys_running_statistics_stand_still_in_its_forward_pass() -> None:
    target = frozen_copy(network())
    before = target[1].running_mean.clone()
    y = target(torch.randn(8, 3) + 5)
    assert torch.equal(target[1].running_mean, before)
    torch.testing.assert_close(target[1](torch.randn(64, 4) * 3).std(0), torch.ones(4), atol=0.05, rtol=0)
    assert not y.requires_grad


def test_parameters_and_floating_buffers_average_and_counters_are_copied() -> None:
    torch.manual_seed(0)
    source, target = network(), frozen_copy(network())
    source(torch.randn(8, 3) + 5)
    before = copy.deepcopy(target.state_dict())
    ema_update(target, source, 0.9)
    for key, value in target.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, 0.9 * before[key] + 0.1 * source.state_dict()[key])
        else:
            assert value == source.state_dict()[key] == 1
    assert not torch.equal(target[1].running_mean, before["1.running_mean"])


def test_momentum_one_holds_and_zero_copies() -> None:
    source, target = network(), frozen_copy(network())
    before = copy.deepcopy(target.state_dict())
    ema_update(target, source, 1.0)
    assert all(torch.equal(v, before[k]) for k, v in target.state_dict().items())
    ema_update(target, source, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(target.parameters(), source.parameters(), strict=True))
    assert ema_distance(target, source) == 0


def test_the_same_network_twice_is_refused() -> None:
    source = network()
    with pytest.raises(ValueError, match=facts("same network momentum")):
        ema_update(source, source, 0.9)
    half_shared = nn.Sequential(source[0], *frozen_copy(source)[1:])
    with pytest.raises(ValueError, match=facts("0.weight")):
        ema_update(half_shared, source, 0.9)


def test_another_architecture_and_a_wrong_momentum_are_refused() -> None:
    with pytest.raises(ValueError, match=facts("architecture")):
        ema_update(nn.Linear(2, 2, bias=False), nn.Linear(2, 2), 0.9)
    for momentum in (-0.1, 1.1):
        with pytest.raises(ValueError, match=facts("momentum")):
            ema_update(frozen_copy(network()), network(), momentum)


def test_distance_is_relative() -> None:
    source = nn.Linear(2, 1, bias=False)
    target = frozen_copy(source)
    with torch.no_grad():
        source.weight.copy_(torch.tensor([[3.0, 4.0]]))
        target.weight.copy_(torch.tensor([[3.0, 3.0]]))
    torch.testing.assert_close(ema_distance(target, source), torch.tensor(0.2))


def test_momentum_stays_within_bounds_beyond_the_end() -> None:
    assert cosine_momentum(0.99, 1.2) == 1.0 and cosine_momentum(0.99, -0.1) == 0.99
