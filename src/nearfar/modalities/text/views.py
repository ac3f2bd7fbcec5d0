"""Views of sentences: other words are left out of each."""

import torch
from torch import Tensor

from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.nn.masking import drop_tokens
from nearfar.nn.shard import Shard


def without_words(
    tokens: Tensor, rate: float, tokenizer: Tokenizer, generator: torch.Generator, shard: Shard | None = None
) -> Tensor:
    """(B, L) tokens to (B, L), without a fraction of them, moved together.

    Drawn for the batch of all processes and the longest texts, so that neither their number nor padding changes a row.
    """
    rows = len(tokens) if shard is None else shard.total
    chance = torch.rand(rows, tokenizer.max_length, generator=generator)
    own = (chance if shard is None else shard.select(chance))[:, : tokens.shape[1]]
    return drop_tokens(tokens, own.to(tokens.device) >= rate, tokenizer.special)
