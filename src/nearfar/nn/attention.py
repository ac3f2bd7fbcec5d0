"""Multi-head self-attention and the pre-norm Transformer made of it, bidirectional or causal."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Every place of a sequence takes from all others, in `heads` ways at once, what resembles its question.

    Args:
        width: D, of the sequence's rows; a multiple of `heads`.
        causal: a place sees itself and what is before it.
        dropout: of the attention weights, in training.

    Reference: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"width is {width} and heads is {heads}, expected a width that the heads divide")
        self.width, self.heads, self.causal = width, heads, causal
        self.qkv = nn.Linear(width, 3 * width)  # queries, keys, values, in this order
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (B, L, D).
            padding: (B, L) booleans, True at places that nobody may look at.

        Returns:
            (B, L, D). A place that may look at nothing takes nothing, rather than NaN.
        """
        q, k, v = self._heads(x, padding)
        seen, blind = _visible(x, padding, self.causal)
        rate = self.dropout.p if self.training else 0.0
        alone = self.causal and padding is None  # torch then needs no mask
        y = F.scaled_dot_product_attention(q, k, v, None if alone else seen, dropout_p=rate, is_causal=alone)
        return self._joined(y, blind)

    def with_weights(self, x: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What `forward` gives, and (B, H, L, L): how much each place (a row) takes from each (a column).

        Rows sum to 1, or to 0 where there is nothing to look at. Slower, and quadratic in memory.
        """
        q, k, v = self._heads(x, padding)
        seen, blind = _visible(x, padding, self.causal)
        scores = q @ k.transpose(-2, -1) * (self.width // self.heads) ** -0.5  # (B, H, L, L)
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        weights = scores.softmax(-1)
        y = self._joined(self.dropout(weights) @ v, blind)
        return y, weights if blind is None else weights.masked_fill(blind, 0.0)

    def _heads(self, x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if x.ndim != 3 or x.shape[2] != self.width:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (B, L, {self.width})")
        if padding is not None and (padding.shape != x.shape[:2] or padding.dtype != torch.bool):
            raise ValueError(
                f"padding is {padding.dtype} of shape {tuple(padding.shape)}, expected booleans of shape "
                f"{tuple(x.shape[:2])}, True at padding"
            )
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()  # each (B, H, L, D/H)
        return q, k, v

    def _joined(self, y: Tensor, blind: Tensor | None) -> Tensor:
        """(B, H, L, D/H) to (B, L, D)."""
        if blind is not None:
            y = y.masked_fill(blind, 0.0)
        joined: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return joined


def _visible(x: Tensor, padding: Tensor | None, causal: bool) -> tuple[Tensor | None, Tensor | None]:
    """What each place may look at, and which may look at nothing: booleans that broadcast to (B, H, L, L).

    The latter may look at everything, and what comes of it is thrown away: a softmax over nothing is NaN, whose
    gradient is NaN even where it is masked.
    """
    seen: Tensor | None = None
    if causal:
        length = x.shape[1]
        seen = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()[None, None]  # (1, 1, L, L)
    if padding is None:
        return seen, None
    real = ~padding[:, None, None, :]  # (B, 1, 1, L)
    seen = real if seen is None else seen & real
    blind = ~seen.any(-1, keepdim=True)  # (B, 1, L or 1, 1)
    return seen | blind, blind


class Block(nn.Module):
    """Attention, then a perceptron of one hidden layer, each normalised before and added to its input."""

    def __init__(
        self, width: int, heads: int, *, causal: bool = False, dropout: float = 0.0, expansion: int = 4
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal=causal, dropout=dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self._after(x, self.attention(self.norm1(x), padding))

    def with_weights(self, x: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What `forward` gives, and (B, H, L, L)."""
        y, weights = self.attention.with_weights(self.norm1(x), padding)
        return self._after(x, y), weights

    def _after(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(attended)
        y: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return y


class Transformer(nn.Module):
    """Blocks in a row and a last norm: x (B, L, D) to (B, L, D).

    Args:
        width, heads, causal, dropout: as for `SelfAttention`; dropout also of what a block adds to its input.
        layers: blocks.
        expansion: the hidden layer's width is that times `width`.

    The norm is inside each branch (pre-norm), so it trains without a long warm-up; weights start as CLIP's do, those
    that end a branch smaller the more blocks there are.

    References: Xiong et al. 2020, https://arxiv.org/abs/2002.04745; Radford et al. 2021, section 2.4,
    https://arxiv.org/abs/2103.00020

    >>> Transformer(16, layers=2, heads=4)(torch.zeros(3, 5, 16)).shape
    torch.Size([3, 5, 16])
    """

    def __init__(
        self, width: int, *, layers: int, heads: int, causal: bool = False, dropout: float = 0.0, expansion: int = 4
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers is {layers}, expected at least 1")
        self.blocks = nn.ModuleList(
            Block(width, heads, causal=causal, dropout=dropout, expansion=expansion) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        for block in self.blocks:
            assert isinstance(block, Block)
            _initialise(block, width, layers)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """`padding`: (B, L) booleans, True at places that nobody may look at."""
        for block in self.blocks:
            x = block(x, padding)
        y: Tensor = self.norm(x)
        return y

    def with_weights(self, x: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What `forward` gives, and every block's attention weights (B, layers, H, L, L)."""
        maps = []
        for block in self.blocks:
            assert isinstance(block, Block)
            x, weights = block.with_weights(x, padding)
            maps.append(weights)
        return self.norm(x), torch.stack(maps, 1)


def _initialise(block: Block, width: int, layers: int) -> None:
    ends = width**-0.5 * (2 * layers) ** -0.5
    first, last = block.mlp[0], block.mlp[2]
    for linear, deviation in (
        (block.attention.qkv, width**-0.5),
        (block.attention.out, ends),
        (first, (2 * width) ** -0.5),
        (last, ends),
    ):
        assert isinstance(linear, nn.Linear)
        nn.init.normal_(linear.weight, std=deviation)
        nn.init.zeros_(linear.bias)
