"""Multi-head self-attention and the pre-norm Transformer made of it, bidirectional or causal."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Multi-head scaled dot-product self-attention.

    Args:
        width: D, features of a token; a multiple of `heads`.
        causal: a token attends to itself and to earlier tokens only.
        dropout: of the attention weights, in training.

    Reference: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"width is {width} and heads is {heads}, expected a width that is a multiple of heads")
        self.width, self.heads, self.causal = width, heads, causal
        self.qkv = nn.Linear(width, 3 * width)  # queries, keys, values, in this order
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (B, L, D).
            padding: (B, L) booleans, True at tokens to be ignored.

        Returns:
            (B, L, D). A token that can attend to nothing gets 0 from attention, rather than NaN.
        """
        q, k, v = self._split_heads(x, padding)
        mask, blind = _attention_mask(x, padding, self.causal)
        rate = self.dropout.p if self.training else 0.0
        causal_only = self.causal and padding is None  # torch then needs no mask
        mask = None if causal_only else mask
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=rate, is_causal=causal_only)
        return self._merge_heads(y, blind)

    def forward_with_weights(self, x: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The result of `forward`, and the attention weights (B, H, L, L), from each token (row) to each (column).

        Rows sum to 1, or to 0 if there is nothing to attend to. Slower, and quadratic in memory.
        """
        q, k, v = self._split_heads(x, padding)
        mask, blind = _attention_mask(x, padding, self.causal)
        scores = q @ k.transpose(-2, -1) * (self.width // self.heads) ** -0.5  # (B, H, L, L)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1)
        y = self._merge_heads(self.dropout(weights) @ v, blind)
        return y, weights if blind is None else weights.masked_fill(blind, 0.0)

    def _split_heads(self, x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if x.ndim != 3 or x.shape[2] != self.width:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (B, L, {self.width})")
        if padding is not None and (padding.shape != x.shape[:2] or padding.dtype != torch.bool):
            shape = tuple(padding.shape)
            raise ValueError(f"padding is {padding.dtype} of shape {shape}, expected booleans {tuple(x.shape[:2])}")
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()  # each (B, H, L, D/H)
        return q, k, v

    def _merge_heads(self, y: Tensor, blind: Tensor | None) -> Tensor:
        """(B, H, L, D/H) to (B, L, D)."""
        if blind is not None:
            y = y.masked_fill(blind, 0.0)
        joined: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return joined


def _attention_mask(x: Tensor, padding: Tensor | None, causal: bool) -> tuple[Tensor | None, Tensor | None]:
    """Which tokens each may attend to, and which have none: booleans that broadcast to (B, H, L, L).

    The latter attend to everything, and the result is discarded: a softmax over nothing is NaN, and so is its gradient,
    even where it is masked.
    """
    mask: Tensor | None = None
    if causal:
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()[None, None]  # (1, 1, L, L)
    if padding is None:
        return mask, None
    real = ~padding[:, None, None, :]  # (B, 1, 1, L)
    mask = real if mask is None else mask & real
    blind = ~mask.any(-1, keepdim=True)  # (B, 1, L or 1, 1)
    return mask | blind, blind


class QuickGELU(nn.Module):
    """`x · sigmoid(1.702 x)`, close to GELU: the activation of the CLIP models that OpenAI published."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    """Attention, then an MLP with one hidden layer, each with a LayerNorm before it and a residual connection."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        expansion: int = 4,
        quick_gelu: bool = False,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal=causal, dropout=dropout)
        self.norm2 = nn.LayerNorm(width)
        activation = QuickGELU() if quick_gelu else nn.GELU()
        self.mlp = nn.Sequential(nn.Linear(width, expansion * width), activation, nn.Linear(expansion * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self._residual(x, self.attention(self.norm1(x), padding))

    def forward_with_weights(self, x: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The result of `forward`, and the attention weights (B, H, L, L)."""
        y, weights = self.attention.forward_with_weights(self.norm1(x), padding)
        return self._residual(x, y), weights

    def _residual(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(attended)
        y: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return y


class Transformer(nn.Module):
    """A stack of blocks and a final LayerNorm: x (B, L, D) to (B, L, D).

    Args:
        width, heads, causal, dropout: as for `SelfAttention`; dropout also on the output of each branch.
        layers: number of blocks.
        expansion: width of the hidden layer, as a multiple of `width`.
        quick_gelu: `QuickGELU` in place of GELU.

    Pre-norm, so it trains without a long warm-up. Weights are initialized like CLIP's: those that end a branch are
    smaller if there are more blocks.

    References: Xiong et al. 2020, https://arxiv.org/abs/2002.04745; Radford et al. 2021, section 2.4,
    https://arxiv.org/abs/2103.00020

    >>> Transformer(16, layers=2, heads=4)(torch.zeros(3, 5, 16)).shape
    torch.Size([3, 5, 16])
    """

    def __init__(
        self,
        width: int,
        *,
        layers: int,
        heads: int,
        causal: bool = False,
        dropout: float = 0.0,
        expansion: int = 4,
        quick_gelu: bool = False,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers is {layers}, expected at least 1")
        self.blocks = nn.ModuleList(
            Block(width, heads, causal=causal, dropout=dropout, expansion=expansion, quick_gelu=quick_gelu)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        for block in self.blocks:
            assert isinstance(block, Block)
            _init_weights(block, width, layers)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """`padding`: (B, L) booleans, True at tokens to be ignored."""
        for block in self.blocks:
            x = block(x, padding)
        y: Tensor = self.norm(x)
        return y

    def forward_with_weights(self, x: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The result of `forward`, and the attention weights of every block (B, layers, H, L, L)."""
        maps = []
        for block in self.blocks:
            assert isinstance(block, Block)
            x, weights = block.forward_with_weights(x, padding)
            maps.append(weights)
        return self.norm(x), torch.stack(maps, 1)


def _init_weights(block: Block, width: int, layers: int) -> None:
    last = width**-0.5 * (2 * layers) ** -0.5
    linears = block.attention.qkv, block.attention.out, block.mlp[0], block.mlp[2]
    for linear, std in zip(linears, (width**-0.5, last, (2 * width) ** -0.5, last), strict=True):
        assert isinstance(linear, nn.Linear)
        nn.init.normal_(linear.weight, std=std)
        nn.init.zeros_(linear.bias)
