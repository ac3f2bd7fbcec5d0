"""Sentences as a data set of tokens, tokenized when they are first fetched."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.modalities.text.data import TextDataset

Tokenize = Callable[[Sequence[str]], Tensor]  # texts to (N, L) integers, 0 where there is no text


class SentenceDataset(Dataset):
    """Texts whose `fetch` gives tokens (B, L) int64.

    Args:
        source: the texts, and what is known of each.
        tokenize: called when the first tokens are needed; before, a tokenizer may still have to be learned.
        tokens: those of texts, partners and negatives, if they are known already.
    """

    size = 0

    def __init__(self, source: TextDataset, tokenize: Tokenize, tokens: Sequence[Tensor] | None = None) -> None:
        self.source, self.tokenize, self._tokens = source, tokenize, tokens
        self.texts, self.partners, self.negatives = source.texts, source.partners, source.negatives
        self.scores = source.scores
        self.labels, self.classes, self.groups = source.labels, source.classes, source.groups
        self.names, self.skipped = source.names, source.skipped

    def __len__(self) -> int:
        return len(self.source)

    @property
    def tokens(self) -> Sequence[Tensor]:
        """(N, L) int32 of the texts and, if there are some, of their partners and negatives."""
        if self._tokens is None:
            several = (self.source.texts, self.source.partners, self.source.negatives)
            self._tokens = [self.tokenize(part).to(torch.int32) for part in several if part is not None]
        return self._tokens

    def fetch(self, indices: Tensor) -> Tensor:
        return self.tokens[0][indices.cpu()].long()

    def others(self, indices: Tensor) -> list[Tensor]:
        """The partners of (B,) texts, then their negatives, as far as there are some: each (B, L)."""
        return [x[indices.cpu()].long() for x in self.tokens[1:]]

    def subset(self, indices: Tensor) -> "SentenceDataset":
        tokens = None if self._tokens is None else [x[indices] for x in self._tokens]
        return SentenceDataset(self.source.subset(indices), self.tokenize, tokens)

    @property
    def all_texts(self) -> Iterator[str]:
        return chain(self.source.texts, self.source.partners or (), self.source.negatives or ())

    @property
    def token_counts(self) -> Tensor:  # type: ignore[override]
        return self.tokens[0].ne(0).sum(1)
