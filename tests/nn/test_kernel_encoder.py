"""The encoder of kernels with thresholds: equal to its formula, whatever is behind the end of a series."""

import math

import pytest
import torch
from torch import nn

from nearfar.nn.kernel_encoder import CPCKernelEncoder, KernelEncoder


def by_loops(net: KernelEncoder, x: torch.Tensor) -> torch.Tensor:
    """The features of one series (C, T) in evaluation mode, tap by tap."""
    rows = []
    for convolution in net.convolutions:
        assert isinstance(convolution, nn.Conv1d)
        dilation, length = convolution.dilation[0], convolution.kernel_size[0]
        for kernel in convolution.weight:
            row = []
            for frame in range(x.shape[1] // net.hop):
                total = torch.zeros((), dtype=x.dtype)
                for tap in range(length):
                    at = frame * net.hop + (tap - length // 2) * dilation
                    if 0 <= at < x.shape[1]:
                        total = total + (kernel[:, tap] * x[:, at]).sum()
                row.append(total)
            rows.append(torch.stack(row))
    assert net.norm.running_mean is not None and net.norm.running_var is not None
    features = []
    for k, row in enumerate(rows):
        response = (row - net.norm.running_mean[k]) / (net.norm.running_var[k] + net.norm.eps).sqrt()
        features.append(1 / (1 + torch.exp(-8 * (response + net.threshold[k]))))
    y = torch.stack(features)  # (K, L)
    count = y.shape[1]
    early = torch.tensor([math.cos(math.pi * (i + 0.5) / count) for i in range(count)], dtype=x.dtype)
    return torch.cat([y.mean(1), (y * early).mean(1)])


@pytest.mark.parametrize("steps", [24, 300])
def test_features_equal_the_formula(steps: int) -> None:
    torch.manual_seed(0)
    net = KernelEncoder(2, steps=steps, kernels=7, length=5).double()
    x = torch.randn(3, 2, steps, dtype=torch.float64)
    net(x)  # moves the statistics
    net.eval()
    assert net.hop == (1 if steps == 24 else 2) and len(net.convolutions) == (3 if steps == 24 else 7)
    torch.testing.assert_close(net(x), torch.stack([by_loops(net, each) for each in x]))
    torch.testing.assert_close(net(x[:, :, :20])[0], by_loops(net, x[0, :, :20]))


def test_what_is_behind_the_end_changes_nothing() -> None:
    torch.manual_seed(0)
    net = KernelEncoder(2, steps=300, kernels=10).double()
    x = torch.full((3, 2, 300), torch.nan, dtype=torch.float64)
    lengths = [300, 131, 40]
    for row, length in enumerate(lengths):
        x[row, :, :length] = torch.randn(2, length, dtype=torch.float64)
    net(x)
    net.eval()
    frames, present = net.frames(x)
    for row, length in enumerate(lengths):
        alone, there = net.frames(x[row : row + 1, :, :length])
        assert there.all() and int(present[row].sum()) == alone.shape[1] == length // net.hop
        torch.testing.assert_close(frames[row, present[row]], alone[0])
        torch.testing.assert_close(net(x)[row], net(x[row : row + 1, :, :length])[0])


def test_padding_is_no_part_of_the_statistics() -> None:
    torch.manual_seed(0)
    net = KernelEncoder(1, steps=64, kernels=6)
    x = torch.randn(4, 1, 64)
    padded = torch.cat([x, torch.full((4, 1, 30), torch.nan)], 2)
    torch.testing.assert_close(net(x), net(padded))
    x[2:, :, 40:] = torch.nan
    net(x).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_kernels_start_without_a_mean_and_with_norm_one() -> None:
    for convolution in KernelEncoder(3, steps=200, kernels=50).convolutions:
        weight = convolution.weight
        assert isinstance(weight, torch.Tensor)
        torch.testing.assert_close(weight.mean(2), torch.zeros(weight.shape[:2]), atol=1e-6, rtol=0)
        torch.testing.assert_close(weight.flatten(1).norm(dim=1), torch.ones(len(weight)))


def test_short_series_have_few_scales_and_long_ones_few_frames() -> None:
    assert [len(KernelEncoder(steps=steps).convolutions) for steps in (2, 9, 24, 100, 1000)] == [1, 1, 2, 4, 7]
    assert [KernelEncoder(steps=steps).hop for steps in (2, 100, 256, 1000, 5000)] == [1, 1, 2, 4, 32]
    assert KernelEncoder(steps=5000).num_features == 512


@pytest.mark.parametrize(("steps", "many"), [(24, 1), (300, 4)])
def test_latents_are_averages_of_whole_groups_of_frames(steps: int, many: int) -> None:
    torch.manual_seed(0)
    net = CPCKernelEncoder(2, steps=steps, kernels=6, width=3, context=4).double()
    x = torch.randn(2, 2, steps, dtype=torch.float64)
    x[1, :, steps // 2 :] = torch.nan
    net(x)
    net.eval()
    frames, present = net.frames(x)
    z, there = net.latents(x)
    assert net.contexts(z).shape == (*there.shape, 4)
    for row in range(2):
        own = frames[row, present[row]]
        groups = [own[i : i + many].mean(0) for i in range(0, len(own) - many + 1, many)]
        assert int(there[row].sum()) == len(groups)
        expected = torch.stack(groups) @ net.to_latent.weight.T + net.to_latent.bias
        torch.testing.assert_close(z[row, there[row]], expected)


def test_what_is_behind_the_end_changes_no_latent() -> None:
    torch.manual_seed(0)
    net = CPCKernelEncoder(1, steps=300, kernels=6).double().eval()
    x = torch.randn(1, 1, 97, dtype=torch.float64)
    padded = torch.cat([x, torch.full((1, 1, 203), torch.nan, dtype=torch.float64)], 2)
    z, present = net.latents(padded)
    alone, there = net.latents(x)
    assert there.all()
    torch.testing.assert_close(z[present], alone[0])
