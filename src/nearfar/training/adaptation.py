"""Given weights, trained further: which of them stay, and how fast the others move.

A network that was filled with weights says so in its attribute `loaded`. Everything here looks at such parts of the
encoder alone; without one, nothing happens.
"""

from typing import Any

from torch import nn

from nearfar.nn.layers import layers
from nearfar.nn.norm import fix_statistics
from nearfar.training.config import AdaptConfig


def pretrained_parts(encoder: nn.Module) -> list[nn.Module]:
    """The networks within an encoder that began with pretrained weights: one, none, or a tower of two."""
    return [part for part in encoder.modules() if isinstance(getattr(part, "loaded", None), str)]


def freeze_pretrained(encoder: nn.Module, adapt: AdaptConfig) -> None:
    """Hold the lower blocks and the BatchNorm statistics of pretrained weights, if the settings say so."""
    for part in pretrained_parts(encoder):
        if adapt.batch_norm == "frozen":
            fix_statistics(part)
        blocks = layers(part) if adapt.freeze_blocks else []
        if adapt.freeze_blocks > len(blocks):
            raise ValueError(
                f"--adapt.freeze-blocks is {adapt.freeze_blocks}, and the pretrained network has {len(blocks)}"
            )
        for parameter in (p for block in blocks[: adapt.freeze_blocks] for p in block):
            parameter.requires_grad_(False)


def adapted_groups(encoder: nn.Module, groups: list[dict[str, Any]], adapt: AdaptConfig) -> list[dict[str, Any]]:
    """Parameter groups of an optimizer, divided so that each pretrained block has its own learning rate.

    The last pretrained block has the learning rate of its group, each below `layer_decay` of the one above, and new
    layers `head_lr` times the rate. Groups of pretrained weights have "pretrained": True, which lets them wait while
    new layers are trained alone; where there are no new layers they have nothing to wait for.

    Reference: Bao et al. 2022 (BEiT), appendix, https://arxiv.org/abs/2106.08254
    """
    height: dict[nn.Parameter, int] = {}  # blocks above that of a pretrained weight
    for part in pretrained_parts(encoder):
        height |= {p: above for above, block in enumerate(reversed(layers(part))) for p in block}
    plain = AdaptConfig()
    names = ("layer_decay", "head_lr", "head_warmup")
    if not height or all(getattr(adapt, name) == getattr(plain, name) for name in names):
        return groups
    waits = any(p not in height for group in groups for p in group["params"])
    found = []
    for group in groups:
        for above in sorted({height.get(p, -1) for p in group["params"]}):
            scale = adapt.head_lr if above < 0 else adapt.layer_decay**above
            some = [p for p in group["params"] if height.get(p, -1) == above]
            found.append(
                {**group, "params": some, "lr_scale": group.get("lr_scale", 1.0) * scale}
                | {"pretrained": above >= 0 and waits}
            )
    return found
