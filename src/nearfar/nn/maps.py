"""The maps (B, C, H, W) that a network of images makes on its way to its features."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

STRIDES = (4, 8, 16, 32)  # of the maps that are looked for
_PROBE = (128, 192)  # height and width: not a square, to recognize maps with their channels last


class Stage(NamedTuple):
    """A map that a network makes."""

    module: str  # its name in the network
    stride: int
    channels: int


def stages(network: nn.Module) -> list[Stage]:
    """The last map (B, C, H / stride, W / stride) at each stride from 4 to 32, finest first, found by running it once.

    Of the modules that make one, those that timm says are stages, where it says so, else the outermost: a block that
    halves the size at its second convolution still makes a map of the old size at its first.

    Raises:
        ValueError: where there is none, as in a vision transformer.
    """
    found: dict[int, Stage] = {}

    def watch(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if not isinstance(output, Tensor) or output.ndim != 4:
            return
        stride = _PROBE[0] // max(1, output.shape[2])
        if stride not in STRIDES or output.shape[2:] != (_PROBE[0] // stride, _PROBE[1] // stride):
            return
        if stride not in found or name.count(".") <= found[stride].module.count("."):
            found[stride] = Stage(name, stride, output.shape[1])

    told, modes = _told_by_timm(network), [(module, module.training) for module in network.modules()]
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    hooks = [
        module.register_forward_hook(partial(watch, name))
        for name, module in network.named_modules()
        if name and (name in told or not told)
    ]
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, 3, *_PROBE, device=device))
    except Exception as error:  # a network may refuse the size in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"it takes no images of {_PROBE[0]} × {_PROBE[1]} pixels ({reason})") from None
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode
    if not found:
        raise ValueError(f"it makes no maps (B, C, H, W) at a stride of {', '.join(map(str, STRIDES))}")
    return [found[stride] for stride in sorted(found)]


def _told_by_timm(network: nn.Module) -> set[str]:
    """The names of the stages of timm's networks; empty of others."""
    for prefix, module in network.named_modules():
        told = getattr(module, "feature_info", None)
        if isinstance(told, list) and all(isinstance(stage, dict) and "module" in stage for stage in told):
            return {f"{prefix}.{stage['module']}".removeprefix(".") for stage in told}
    return set()
