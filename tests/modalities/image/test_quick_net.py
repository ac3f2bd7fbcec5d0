"""QuickNet: its fixed basis, its shapes, and that only the rest learns."""

import pytest
import torch

from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.quick_net import QuickNet, cosine_patches


@pytest.mark.parametrize("side", [2, 3, 4])
def test_patches_are_an_orthonormal_basis_with_the_mean_first(side: int) -> None:
    flat = cosine_patches(side).double().flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(3 * side**2, dtype=torch.float64), rtol=0, atol=1e-6)
    assert torch.allclose(flat[0], flat[0, 0].expand_as(flat[0]))  # brightness of the whole patch
    assert torch.allclose(flat[3:].unflatten(1, (3, -1)).sum(2), torch.zeros(()).double(), atol=1e-6)


@pytest.mark.parametrize(("size", "first", "last"), [(16, 16, 4), (32, 16, 4), (64, 16, 4), (96, 24, 3), (224, 56, 3)])
def test_maps_and_features_of_every_size(size: int, first: int, last: int) -> None:
    network, x = QuickNet(size), torch.randn(2, 3, size, size)
    assert network.first(x).shape[2:] == (first, first)
    assert network.stages(network.norm(network.first(x)).repeat(1, 2, 1, 1)).shape == (2, 256, last, last)
    network = backbone("quick", size=size)
    assert network.num_features == 256
    assert network(x).shape == network(torch.randn(2, 3, size + 7, size)).shape == (2, 256)


def test_the_first_layer_stays_as_it_is() -> None:
    network = QuickNet(16)
    network(torch.randn(8, 3, 16, 16)).square().mean().backward()
    without = [name for name, p in network.named_parameters() if p.grad is None]
    assert without == ["first.weight"]
    assert torch.equal(network.first.weight, cosine_patches(3))


def test_its_components_are_standardised_with_a_floor() -> None:
    network = QuickNet(32)
    x = torch.nn.functional.avg_pool2d(torch.randn(64, 3, 34, 34), 3, 1) * 3  # smooth, as photographs are
    y = network.norm(network.first(x))
    variance, floor = network.first(x).var((0, 2, 3), unbiased=False), 1e-2
    torch.testing.assert_close(y.var((0, 2, 3), unbiased=False), variance / (variance + floor), rtol=1e-3, atol=1e-4)
