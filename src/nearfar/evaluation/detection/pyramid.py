"""A feature pyramid on an encoder of images: its maps at several strides, each knowing what the coarser ones know."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar import _torchvision  # noqa: F401, before torchvision
from nearfar.evaluation.embedding import device_of, evaluation_mode

from torchvision.ops import feature_pyramid_network as fpn  # isort: skip

STRIDES = (4, 8, 16, 32)  # of an encoder's maps that a pyramid may stand on
GROUPS = 32  # of the group norms
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

    told = _told_by_timm(network)
    hooks = [
        module.register_forward_hook(partial(watch, name))
        for name, module in network.named_modules()
        if name and (name in told or not told)
    ]
    try:
        with torch.no_grad(), evaluation_mode(network):
            network(torch.zeros(1, 3, *_PROBE, device=device_of(network)))
    except Exception as error:  # a network may refuse the size in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"it takes no images of {_PROBE[0]} × {_PROBE[1]} pixels ({reason})") from None
    finally:
        for hook in hooks:
            hook.remove()
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


class Pyramid(nn.Module):
    """An encoder and a feature pyramid network on its maps; levels coarser than those are convolutions of stride 2.

    Args:
        encoder: whose maps are used; its own output is not.
        finest: least stride of a level, if the encoder has a map of it.
        largest: pixels of the largest picture: levels go on until eight strides cover it.
        frozen: the encoder stays as it is, in evaluation mode.

    Attributes:
        strides: of the levels, finest first.
        out_channels: of every level: a quarter of the widest map's, from 64 to 256, which is what ResNet-50 has.

    Reference: Lin et al. 2017, https://arxiv.org/abs/1612.03144
    """

    def __init__(self, encoder: nn.Module, *, finest: int, largest: int, frozen: bool = False) -> None:
        super().__init__()
        there = stages(encoder)
        first, *above = [stage for stage in there if stage.stride >= finest] or there[-1:]
        chosen = [first]
        for stage in above:
            if stage.stride == 2 * chosen[-1].stride and 8 * chosen[-1].stride < largest:
                chosen.append(stage)
        self.encoder, self.frozen, self.names = encoder, frozen, [stage.module for stage in chosen]
        self.strides = [stage.stride for stage in chosen]
        while 8 * self.strides[-1] < largest:
            self.strides.append(2 * self.strides[-1])
        widest = max(stage.channels for stage in chosen)
        self.out_channels = min(256, max(64, widest // 4 // GROUPS * GROUPS))
        self.fpn = fpn.FeaturePyramidNetwork(
            [stage.channels for stage in chosen],
            self.out_channels,
            extra_blocks=Coarser(self.out_channels, len(self.strides) - len(chosen)),
            norm_layer=partial(nn.GroupNorm, GROUPS),
        )
        self._maps: dict[str, Tensor] = {}
        for name in self.names:
            encoder.get_submodule(name).register_forward_hook(partial(self._keep, name))
        if frozen:
            encoder.requires_grad_(False)

    def _keep(self, name: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        self._maps[name] = output

    def train(self, mode: bool = True) -> "Pyramid":
        super().train(mode)
        if self.frozen:
            self.encoder.eval()  # it keeps its statistics, too
        return self

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """(B, 3, H, W) to a map (B, out_channels, H / stride, W / stride) for each of the strides."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            self.encoder(x)
        maps = OrderedDict((name, self._maps[name]) for name in self.names)
        self._maps.clear()
        levels: dict[str, Tensor] = self.fpn(maps)
        return levels


class Coarser(fpn.ExtraFPNBlock):  # type: ignore[misc]
    """Further levels above a pyramid, each by a convolution of stride 2 of the one below; RetinaNet's P6 and P7."""

    def __init__(self, channels: int, levels: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, 2, 1) for _ in range(levels))
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv2d) and convolution.bias is not None
            nn.init.kaiming_uniform_(convolution.weight, a=1)
            nn.init.zeros_(convolution.bias)

    def forward(
        self, results: list[Tensor], maps: Sequence[Tensor], names: list[str]
    ) -> tuple[list[Tensor], list[str]]:
        for number, convolution in enumerate(self.convolutions):
            results.append(convolution(F.relu(results[-1]) if number else results[-1]))
            names.append(f"coarser{number}")
        return results, names
