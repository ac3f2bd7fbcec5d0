"""Images with their captions as tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nearfar.data.dataset import Captions, Dataset, Skipped
from nearfar.modalities.text.data import Tokenize
from nearfar.nn.shard import Shard


class CaptionedImages(Dataset):
    """Images with captions, tokenized when the first are needed.

    Args:
        images: with captions.
        tokenize: texts to (C, L) tokens.
        tokens: (C, L) of all captions, if they are known already.
        first: (N,) the row of an image's first caption; the others follow it.
    """

    captions: Captions

    def __init__(
        self, images: Dataset, tokenize: Tokenize, tokens: Tensor | None = None, first: Tensor | None = None
    ) -> None:
        assert images.captions is not None
        self.images, self.tokenize, self._tokens = images, tokenize, tokens
        self.captions = images.captions
        self.counts = torch.tensor([len(captions) for captions in images.captions])  # (N,)
        self.first = self.counts.cumsum(0) - self.counts if first is None else first
        self.labels, self.classes, self.groups = images.labels, images.classes, images.groups
        self.names, self.size, self.shards = images.names, images.size, images.shards

    @property
    def skipped(self) -> Sequence[Skipped]:  # type: ignore[override]
        return self.images.skipped

    @property
    def all_texts(self) -> list[str]:
        return [text for captions in self.captions for text in captions]

    @property
    def tokens(self) -> Tensor:
        """(C, L) int32 of all captions."""
        if self._tokens is None:
            self._tokens = self.tokenize(self.all_texts).to(torch.int32)
        return self._tokens

    @property
    def token_counts(self) -> Tensor:  # type: ignore[override]
        return self.tokens[self.first].ne(0).sum(1)

    def __len__(self) -> int:
        return len(self.images)

    def fetch(self, indices: Tensor) -> Tensor:
        return self.images.fetch(indices)

    def failed(self, indices: Tensor) -> dict[int, Skipped]:
        return self.images.failed(indices)

    def subset(self, indices: Tensor) -> "CaptionedImages":
        if self._tokens is None:  # a tokenizer may still have to be learned
            return CaptionedImages(self.images.subset(indices), self.tokenize)
        return CaptionedImages(self.images.subset(indices), self.tokenize, self._tokens, self.first[indices])

    def draw(self, indices: Tensor, generator: torch.Generator, shard: Shard | None = None) -> Tensor:
        """(B,) images to (B, L) tokens, of each one of its captions."""
        return self.tokens[self.first[indices] + self.draw_numbers(indices, generator, shard)].long()

    def draw_numbers(self, indices: Tensor, generator: torch.Generator, shard: Shard | None = None) -> Tensor:
        """(B,) images to (B,) which of its captions is drawn for each."""
        chance = torch.rand(len(indices) if shard is None else shard.total, generator=generator, dtype=torch.float64)
        return ((chance if shard is None else shard.select(chance)) * self.counts[indices]).long()
