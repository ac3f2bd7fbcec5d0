"""A text encoder without layers: the weighted sum of a text's token vectors, which needs few texts to be useful."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.nn.text import check_tokens, tanh_head, trim_padding

WIDTH = 512


class TokenBag(nn.Module):
    """Token vectors, weighted by how rare a token is, summed and of length one: tokens (B, L) to h (B, width).

    Random vectors of many dimensions are nearly orthogonal. So before any training the cosine of two texts is about
    that of their weighted tokens, close to tf-idf; training then brings tokens together that occur in the same texts.
    The order of tokens is not seen. Dropout leaves out whole tokens, so two readings of a text are different texts.

    A token's weight is log(1 + its rank). Tokenizers number tokens by falling frequency, and by Zipf's law frequency
    falls as 1 / rank, which makes this an inverse document frequency up to a constant.

    Args:
        vocab_size, max_length, head: as for `TextEncoder`.
        dropout: the chance of a token to be left out, in training.

    The special tokens of a learned tokenizer, 0 to 3, have the weight 0; `leave_out` says others.

    >>> encoder = TokenBag(100, 8, width=16)
    >>> encoder(torch.tensor([[1, 42, 2, 0], [1, 7, 7, 2]])).shape
    torch.Size([2, 16])
    """

    token_weight: Tensor  # (vocab_size,)

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        *,
        width: int = WIDTH,
        dropout: float = 0.0,
        head: bool = False,
    ) -> None:
        super().__init__()
        self.vocab_size, self.max_length, self.num_features = vocab_size, max_length, width
        self.token_embedding = nn.Embedding(vocab_size, width)
        nn.init.normal_(self.token_embedding.weight, std=width**-0.5)
        self.register_buffer("token_weight", torch.arange(1, vocab_size + 1).log1p(), persistent=False)
        self.leave_out(range(4))
        self.dropout = nn.Dropout(dropout)
        self.head = tanh_head(width) if head else None

    def leave_out(self, special: Sequence[int]) -> None:
        """Give a weight of 0 to the ids that stand for no text, as `Tokenizer.special` has them."""
        self.token_weight.copy_(torch.arange(1, self.vocab_size + 1).log1p())
        self.token_weight[list(special)] = 0

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, L) to h (B, F)."""
        tokens = trim_padding(tokens)
        check_tokens(tokens, self.vocab_size, self.max_length)
        weight = self.dropout(self.token_weight[tokens])  # (B, L)
        h = F.normalize((weight[:, None] @ self.token_embedding(tokens))[:, 0], dim=1)  # (B, F)
        return h if self.head is None else self.head(h)
