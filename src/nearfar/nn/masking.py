"""Masking of tokens for BERT's training task, and dropping them, for whole batches and with an explicit generator."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nearfar.nn.arguments import check_probability

BERT_RATE = 0.15
MASKED, RANDOM = 0.8, 0.1  # of the chosen tokens; the rest stay unchanged


def mask_tokens(
    tokens: Tensor,
    *,
    vocab_size: int,
    mask: int,
    special: Sequence[int],
    generator: torch.Generator | Sequence[torch.Generator],
    rate: float = BERT_RATE,
) -> tuple[Tensor, Tensor]:
    """Choose tokens to predict; 80 % of them become `mask`, 10 % a random token, 10 % stay.

    Args:
        tokens: (B, L) integers.
        vocab_size: ids are below this.
        special: ids that are never chosen and never used as random tokens: padding, start, end, mask.
        generator: on the CPU, so that all devices get the same; or one for each text, so that its choice does not
            depend on the other texts of the batch.
        rate: probability of each token to be chosen, independently.

    Returns:
        (B, L) masked tokens, and (B, L) booleans, True where the original is to be predicted.

    Reference: Devlin et al. 2019, section 3.1, https://arxiv.org/abs/1810.04805, which chooses a fixed number per
    text; here each token is chosen independently.

    >>> tokens = torch.tensor([[1, 7, 8, 9, 2, 0]])
    >>> mask_tokens(tokens, vocab_size=10, mask=3, special=(0, 1, 2, 3), generator=torch.Generator(), rate=1.0)[1]
    tensor([[False,  True,  True,  True, False, False]])
    """
    masked, chosen, _ = mask_tokens_at(
        tokens, vocab_size=vocab_size, mask=mask, special=special, generator=generator, rate=rate
    )
    return masked, chosen


def mask_tokens_at(
    tokens: Tensor,
    *,
    vocab_size: int,
    mask: int,
    special: Sequence[int],
    generator: torch.Generator | Sequence[torch.Generator],
    rate: float = BERT_RATE,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `mask_tokens`, and of tokens on an accelerator (K, 2) rows and columns of all chosen and some special ones.

    They are on the CPU, where they were drawn, so that nothing waits to know how many there are.
    """
    check_probability("rate", rate)
    words = torch.ones(vocab_size, dtype=torch.bool)
    words[list(special)] = False
    choices = words.nonzero()[:, 0]  # (W,) tokens of text
    if not len(choices):
        raise ValueError(f"all {vocab_size} tokens of the vocabulary are special, expected some for text")
    if isinstance(generator, torch.Generator):
        chance, fate = torch.rand(2, *tokens.shape, generator=generator)  # (B, L), (B, L)
        which = torch.randint(len(choices), tokens.shape, generator=generator)
    else:
        drawn = [torch.rand(3, tokens.shape[1], generator=each, dtype=torch.float64) for each in generator]
        chance, fate, part = torch.stack(drawn, 1) if drawn else torch.zeros(3, *tokens.shape)  # each (B, L)
        which = (part * len(choices)).long()
    others = choices[which]  # (B, L)
    places = None if tokens.device.type == "cpu" else (chance < rate).nonzero()
    chance, fate, others, words = (x.to(tokens.device) for x in (chance, fate, others, words))
    chosen = (chance < rate) & words[tokens]
    replaced = torch.where(fate < MASKED, mask, torch.where(fate < MASKED + RANDOM, others, tokens))
    return torch.where(chosen, replaced, tokens), chosen, places


def drop_tokens(tokens: Tensor, kept: Tensor, special: Sequence[int]) -> Tensor:
    """(B, L) tokens without those that are not kept (B, L), moved together; special ones stay.

    >>> drop_tokens(torch.tensor([[1, 7, 8, 2, 0]]), torch.tensor([[False, False, True, False, False]]), [0, 1, 2])
    tensor([[1, 8, 2, 0, 0]])
    """
    text = tokens != 0
    words = text & ~torch.isin(tokens, torch.tensor(list(special), device=tokens.device))
    kept = kept & words
    kept = torch.where(kept.any(1, keepdim=True), kept, words) | (text & ~words)  # a text of nothing says nothing
    order = (~kept).long().argsort(dim=1, stable=True)
    place = torch.arange(tokens.shape[1], device=tokens.device)
    return torch.where(place < kept.sum(1, keepdim=True), tokens.gather(1, order), 0)
