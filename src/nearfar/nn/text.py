"""Text encoders by name: small Transformers of our own for a CPU, and any that `transformers` can load."""

from typing import Literal

import torch
from torch import Tensor, nn

from nearfar.losses.arguments import check_choice
from nearfar.nn.attention import Transformer
from nearfar.nn.shard import current, most_of_all

PADDING = 0  # the token id of places without text; a tokenizer that has another one is translated to this
PRESETS = {  # width, layers, heads; parameters without the token embedding
    "text-micro": (64, 2, 2),  # 0.1 M
    "text-tiny": (128, 4, 4),  # 0.8 M
    "text-small": (256, 6, 4),  # 4.7 M
    "text-base": (512, 12, 8),  # 38 M, the size of CLIP's
}
Pooling = Literal["cls", "mean", "last"]


class TextEncoder(nn.Module):
    """Token embedding, learned positions, a pre-norm Transformer and pooling: tokens (B, L) to h (B, width).

    Text comes first and padding after it, and padding changes nothing. A row of nothing but padding gives finite
    features.

    Args:
        vocabulary, length, pooling, causal: as for `text_encoder`.
        width, layers, heads, dropout: as for `Transformer`.

    >>> encoder = TextEncoder(100, 8, width=16, layers=1, heads=2)
    >>> encoder(torch.tensor([[1, 42, 2, 0], [1, 7, 7, 2]])).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        vocabulary: int,
        length: int,
        *,
        width: int,
        layers: int,
        heads: int,
        pooling: Pooling = "mean",
        causal: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("cls", "mean", "last"))
        if causal and pooling == "cls":
            raise ValueError("pooling is 'cls' and causal is True: the first token sees no other; choose 'last'")
        self.vocabulary, self.length, self.pooling, self.num_features = vocabulary, length, pooling, width
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(length, width))
        self.dropout = nn.Dropout(dropout)
        self.transformer = Transformer(width, layers=layers, heads=heads, causal=causal, dropout=dropout)
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.01)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, L) to h (B, F)."""
        tokens = trimmed(tokens)
        return pooled(self.states(tokens), tokens, self.pooling)

    def states(self, tokens: Tensor) -> Tensor:
        """tokens (B, L) to (B, L, F): what the Transformer makes of each; at padding it is arbitrary."""
        y: Tensor = self.transformer(self._embedded(tokens), tokens == PADDING)
        return y

    def attention(self, tokens: Tensor) -> Tensor:
        """(B, layers, H, L, L): how much each token takes from each, block by block."""
        return self.transformer.with_weights(self._embedded(tokens), tokens == PADDING)[1]

    def _embedded(self, tokens: Tensor) -> Tensor:
        check_tokens(tokens, self.vocabulary, self.length)
        x: Tensor = self.dropout(self.token_embedding(tokens) + self.positions[: tokens.shape[1]])  # (B, L, F)
        return x


def pooled(states: Tensor, tokens: Tensor, pooling: Pooling) -> Tensor:
    """(B, L, F) and the tokens they are of to (B, F); padding does not count.

    >>> states = torch.tensor([[[1.0], [3.0], [100.0]]])
    >>> [pooled(states, torch.tensor([[7, 8, 0]]), how).item() for how in ("cls", "mean", "last")]
    [1.0, 2.0, 3.0]
    """
    if pooling == "cls":
        return states[:, 0]
    real = tokens != PADDING  # (B, L)
    if pooling == "mean":
        kept = states.masked_fill(~real[:, :, None], 0.0)
        return kept.sum(1) / real.sum(1, keepdim=True).clamp(min=1)
    place = torch.arange(tokens.shape[1], device=tokens.device)
    last = (place * real).amax(1)  # (B,)
    return states.gather(1, last[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]


def trimmed(tokens: Tensor) -> Tensor:
    """Without the columns at the end that are padding in every row: the same features for less work.

    Where processes share a batch: in every row of all, so that dropout is drawn as on the whole. A graph that is traced
    for export keeps them, since its input may have text there.

    >>> trimmed(torch.tensor([[5, 6, 0, 0], [5, 0, 0, 0]]))
    tensor([[5, 6],
            [5, 0]])
    """
    if tokens.ndim != 2 or _recorded():
        return tokens
    used = (tokens != PADDING).any(0).nonzero()
    length = int(used.max()) + 1 if len(used) else 1
    if current() is not None:
        length = most_of_all(length, tokens.device)
    return tokens[:, :length]


def check_tokens(tokens: Tensor, vocabulary: int, length: int) -> None:
    """(B, L) integers below `vocabulary`, L from 1 to `length`."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"tokens is {kind}, expected a tensor of integers; Tokenizer.encode makes one of texts")
    if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= length:
        raise ValueError(
            f"tokens has shape {tuple(tokens.shape)}, expected (B, L) with L from 1 to {length}; encode the texts with "
            f"a Tokenizer of length {length}, or make the encoder longer"
        )
    if _recorded() or not tokens.numel():
        return
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(
            f"tokens go from {low} to {high}, expected 0 to {vocabulary - 1}: the tokenizer is not the encoder's"
        )


def _recorded() -> bool:
    """Whether a graph is made of what is done now, in which values are not known."""
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]
