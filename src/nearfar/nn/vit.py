"""What self-supervised Vision Transformers change in the network: fixed positions, and patches that are not learned."""

import math
from typing import Any

import torch
from torch import Tensor, nn


def sincos_positions(rows: int, columns: int, dim: int, *, temperature: float = 10_000.0) -> Tensor:
    """(rows · columns, dim): sine and cosine of each patch's row, then of its column, at dim / 4 frequencies.

    Reference: Chen et al. 2021, section 5, https://arxiv.org/abs/2104.02057

    >>> sincos_positions(1, 2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.0000, 1.0000, 0.8415, 0.5403]])
    """
    if dim % 4:
        raise ValueError(f"dim is {dim}, expected a multiple of 4: sine and cosine of two coordinates")
    frequency = temperature ** -(torch.arange(dim // 4) / (dim // 4))
    patch = torch.arange(rows * columns)
    row, column = ((p[:, None] * frequency) for p in (patch // columns, patch % columns))
    return torch.cat([row.sin(), row.cos(), column.sin(), column.cos()], 1)


@torch.no_grad()
def fix_patches_and_positions(encoder: nn.Module) -> None:
    """Fixed sin-cos positions, and a random patch projection that is not trained: for a ViT trained from scratch.

    Args:
        encoder: a Vision Transformer as timm's (`patch_embed.proj`, `patch_embed.grid_size`, `pos_embed`) or
            torchvision's (`conv_proj`, `encoder.pos_embedding`).

    Reference: Chen et al. 2021, sections 4.2 and 5, https://arxiv.org/abs/2104.02057
    """
    projection, positions, (rows, columns) = _patches_and_positions(encoder)
    fixed = sincos_positions(rows, columns, positions.shape[-1])
    tokens = positions.shape[1] - len(fixed)  # such as [CLS], whose position is 0
    positions.copy_(torch.cat([fixed.new_zeros(tokens, fixed.shape[1]), fixed])[None])
    width = projection.weight[0].numel()
    bound = math.sqrt(6 / (width + projection.out_channels))
    nn.init.uniform_(projection.weight, -bound, bound)
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)
    positions.requires_grad_(False)
    projection.requires_grad_(False)


def _patches_and_positions(encoder: nn.Module) -> tuple[nn.Conv2d, nn.Parameter, tuple[int, int]]:
    """The patch projection, the position embeddings (1, tokens, dim), and the rows and columns of patches."""
    patches: Any = getattr(encoder, "patch_embed", None)
    if patches is not None:
        projection, positions = getattr(patches, "proj", None), getattr(encoder, "pos_embed", None)
        grid = getattr(patches, "grid_size", None)
    else:
        projection = getattr(encoder, "conv_proj", None)
        positions = getattr(getattr(encoder, "encoder", None), "pos_embedding", None)
        side: Any = getattr(encoder, "image_size", 0)
        grid = (side // projection.kernel_size[0],) * 2 if isinstance(projection, nn.Conv2d) else None
    if not isinstance(projection, nn.Conv2d) or not isinstance(positions, nn.Parameter) or grid is None:
        raise ValueError(
            f"{type(encoder).__name__} has no patch projection with positions, expected a Vision Transformer of timm "
            "or torchvision, such as vit_small_patch16_224"
        )
    return projection, positions, (grid[0], grid[1])


def is_vit(backbone: str) -> bool:
    """Whether a backbone's name is that of a Vision Transformer.

    >>> is_vit("vit_small_patch16_224"), is_vit("torchvision:vit_b_16"), is_vit("resnet50")
    (True, True, False)
    """
    return backbone.removeprefix("torchvision:").startswith(("vit_", "deit"))
