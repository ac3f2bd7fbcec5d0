"""Depthwise convolutions with large kernels, whose gradients take a CPU less time.

oneDNN has fast code for the weight gradient of depthwise kernels of 3 × 3, and slow code for larger ones in bfloat16:
those of 5 × 5 took three quarters of a training step of EfficientNet-Lite0. Each weight's gradient is a sum of its own.
So it is computed here in pieces of 3 × 3, each from the input moved by as much, which makes the step 2.9 times as
fast. In float32 nothing is gained, and torch's own gradient is taken.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_PIECE = 3


def quicken_depthwise(network: nn.Module) -> None:
    """From now on a network's large depthwise kernels train faster in bfloat16 and channels_last; its names stay."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and _is_large_depthwise(module):
            if type(module) is nn.Conv2d:
                module.__class__ = DepthwiseConv2d
            elif type(module).__name__ == "Conv2dSame":  # timm's
                module.__class__ = DepthwiseConv2dSame


def _is_large_depthwise(module: nn.Conv2d) -> bool:
    return (
        module.groups == module.in_channels == module.out_channels > 1
        and min(module.kernel_size) > _PIECE
        and set(module.dilation) == {1}
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


class DepthwiseConv2d(nn.Conv2d):
    """nn.Conv2d of one input channel for each output channel."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C, H', W')."""
        return depthwise_conv2d(x, self.weight, self.bias, self.stride, self.padding)  # type: ignore[arg-type]


class DepthwiseConv2dSame(nn.Conv2d):
    """The same, padded so that (H', W') is (H, W) divided by the stride and rounded up: timm's Conv2dSame."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C, H', W')."""
        sides = []
        for size, kernel, stride in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            more = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            sides += [more // 2, more - more // 2]
        return depthwise_conv2d(F.pad(x, sides), self.weight, self.bias, self.stride, (0, 0))  # type: ignore[arg-type]


def depthwise_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """`F.conv2d` with as many groups as channels; its gradients in bfloat16 on a CPU are computed as above.

    Args:
        x: (B, C, H, W).
        weight: (C, 1, K, L).
    """
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    trained = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if x.device.type != "cpu" or dtype != torch.bfloat16 or not trained or torch.compiler.is_compiling():
        return F.conv2d(x, weight, bias, stride, padding, groups=len(weight))
    x, weight = x.to(dtype), weight.to(dtype)
    found: Tensor = _Depthwise.apply(x, weight, stride, padding)  # type: ignore[no-untyped-call]
    return found if bias is None else found + bias.to(found.dtype)[:, None, None]


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, None, stride, padding, groups=len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        for_x = for_weight = None
        if ctx.needs_input_grad[0]:
            dtype = torch.bfloat16 if ctx.stride == (1, 1) else torch.float32  # strides are slow in bfloat16
            for_x = _gradient(gradient.to(dtype), x.to(dtype), weight.to(dtype), ctx.stride, ctx.padding, 0).to(x.dtype)
        if ctx.needs_input_grad[1]:
            for_weight = _weight_gradient(gradient, x, weight, ctx.stride, ctx.padding)
        return for_x, for_weight, None, None


def _weight_gradient(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """(C, 1, K, L) from pieces of 3 × 3; the last ones overlap those before, which are equal where they do."""
    x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    height, width = ((size - 1) * step + _PIECE for size, step in zip(gradient.shape[2:], stride, strict=True))
    found, piece = torch.empty_like(weight), weight.new_empty(len(weight), 1, _PIECE, _PIECE)
    for i in _starts(weight.shape[2]):
        for j in _starts(weight.shape[3]):
            moved = x[:, :, i : i + height, j : j + width].contiguous(memory_format=torch.channels_last)
            found[:, :, i : i + _PIECE, j : j + _PIECE] = _gradient(gradient, moved, piece, stride, (0, 0), 1)
    return found


def _starts(size: int) -> list[int]:
    """Where pieces begin that cover a kernel.

    >>> _starts(5), _starts(7)
    ([0, 2], [0, 3, 4])
    """
    return [*range(0, size - _PIECE, _PIECE), size - _PIECE]


def _gradient(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], of: int
) -> Tensor:
    """By torch: of the input (0) or of the weights (1)."""
    wanted = [of == 0, of == 1, False]
    found: list[Tensor] = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, (1, 1), False, (0, 0), len(weight), wanted
    )
    return found[of]
