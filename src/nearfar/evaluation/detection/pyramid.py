"""A feature pyramid on an encoder of images: its maps at several strides, each knowing what the coarser ones know."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar import _torchvision  # noqa: F401, before torchvision
from nearfar.nn.maps import stages

from torchvision.ops import feature_pyramid_network as fpn  # isort: skip

GROUPS = 32  # of the group norms


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
