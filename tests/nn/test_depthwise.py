"""Depthwise convolutions whose weight gradient is computed in pieces, beside torch's own gradient in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar import _torchvision  # noqa: F401, before timm
from nearfar.nn import depthwise
from nearfar.nn.depthwise import DepthwiseConv2d, DepthwiseConv2dSame, depthwise_conv2d, quicken_depthwise

import timm  # isort: skip

SHAPES = [(5, 1, 2, 8), (5, 2, 2, 9), (5, 2, 0, 11), (7, 1, 3, 8), (7, 3, 1, 14), (4, 1, 0, 6)]


def normal(*shape: int, seed: int) -> Tensor:
    """Of values that bfloat16 holds exactly, so that its products differ by the rounding of sums alone."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x.bfloat16().double()


@pytest.mark.parametrize(("kernel", "stride", "padding", "size"), SHAPES)
def test_pieces_are_the_gradient_of_the_whole(kernel: int, stride: int, padding: int, size: int) -> None:
    x, weight = normal(2, 6, size, size - 1, seed=1), normal(6, 1, kernel, kernel, seed=2)
    weight.requires_grad_()
    y = F.conv2d(x, weight, None, stride, padding, groups=6)
    gradient = normal(*y.shape, seed=3)
    (expected,) = torch.autograd.grad(y, weight, gradient)
    found = depthwise._weight_gradient(gradient, x, weight, (stride, stride), (padding, padding))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # of either, oneDNN sums doubles as floats


@pytest.mark.parametrize(("kernel", "stride", "padding", "size"), SHAPES)
def test_in_bfloat16_gradients_are_those_of_float64(kernel: int, stride: int, padding: int, size: int) -> None:
    x, weight = normal(2, 6, size, size, seed=1), normal(6, 1, kernel, kernel, seed=2)
    bias, gradient = normal(6, seed=4), None
    grads = []
    for dtype, function in ((torch.float64, F.conv2d), (torch.bfloat16, None)):
        parts = [each.to(dtype).requires_grad_() for each in (x, weight, bias)]
        if function is not None:
            y = function(*parts, stride, padding, groups=6)
        else:
            y = depthwise_conv2d(*parts, (stride, stride), (padding, padding))
            assert y.dtype == torch.bfloat16
            assert "Add" in type(y.grad_fn).__name__  # of the bias, on top of the gradients of this module
        gradient = normal(*y.shape, seed=3) if gradient is None else gradient
        grads.append(torch.autograd.grad(y, parts, gradient.to(dtype)))
    for expected, found in zip(*grads, strict=True):
        error = (found.double() - expected).norm() / expected.norm()
        assert error < 0.01


def test_a_network_keeps_its_values_names_and_copies() -> None:
    """Also of timm, whose padding depends on the size of the picture."""
    torch.manual_seed(0)
    network = timm.create_model("tf_efficientnet_lite0", num_classes=0).to(memory_format=torch.channels_last).eval()
    quick = copy.deepcopy(network)
    quicken_depthwise(quick)
    kinds = [type(module) for module in quick.modules()]
    assert kinds.count(DepthwiseConv2dSame) == 2
    assert kinds.count(DepthwiseConv2d) == 7
    assert list(quick.state_dict()) == list(network.state_dict())
    x = torch.randn(2, 3, 70, 64)
    assert torch.equal(quick(x), network(x))  # float32: torch's own function
    with torch.autocast("cpu", torch.bfloat16):
        first, second = network(x), copy.deepcopy(quick)(x)
    assert torch.equal(first, second)
    for y in (first, second):
        y.float().square().mean().backward()
    assert all(parameter.grad is None for parameter in quick.parameters())  # the copy has its own weights


def test_gradients_of_a_whole_network_agree() -> None:
    torch.manual_seed(0)
    network = timm.create_model("tf_efficientnet_lite0", num_classes=0).to(memory_format=torch.channels_last).eval()
    quick = copy.deepcopy(network)
    quicken_depthwise(quick)
    x = torch.randn(4, 3, 64, 64)
    for each in (network, quick):
        with torch.autocast("cpu", torch.bfloat16):
            y = each(x)
        y.float().square().mean().backward()
    for (name, one), other in zip(network.named_parameters(), quick.parameters(), strict=True):
        if one.grad is not None and float(one.grad.norm()) > 0:
            assert other.grad is not None
            assert (one.grad - other.grad).norm() / one.grad.norm() < 0.02, name


def test_others_are_left_alone() -> None:
    layers = [
        nn.Conv2d(4, 4, 3, groups=4),  # small
        nn.Conv2d(4, 8, 5, groups=4),  # two outputs for each input
        nn.Conv2d(4, 4, 5),
        nn.Conv2d(4, 4, 5, groups=4, dilation=2),
        nn.Conv2d(4, 4, 5, groups=4, padding="same"),
        nn.Conv2d(4, 4, 5, groups=4, padding_mode="reflect"),
    ]
    quicken_depthwise(nn.Sequential(*layers))
    assert all(type(layer) is nn.Conv2d for layer in layers)
