"""Sentences: tokens by a tokenizer learned from them, a Transformer, and dropout as the only view."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data import Dataset, TextDataset, Tokenizer, caption_ids, merged_ids, open_texts
from nearfar.evaluate.tfidf import TfIdf
from nearfar.nn.text import text_encoder

_TERMS = 4096  # words that tf-idf counts, at most
DROPOUT = 0.1  # of an encoder whose only view it is


class Tokens:
    """Texts as a data set of tokens: what `fetch` gives is (B, L) int64, 0 where there is no text."""

    captions = None
    size = 0

    def __init__(self, texts: TextDataset, tokens: Tensor) -> None:
        self.source, self.tokens = texts, tokens
        self.texts: Sequence[str] = texts.texts
        self.labels, self.classes, self.groups = texts.labels, texts.classes, texts.groups
        self.names, self.skipped = texts.names, texts.skipped

    def __len__(self) -> int:
        return len(self.tokens)

    def fetch(self, indices: Tensor) -> Tensor:
        return self.tokens[indices.cpu()].long()

    def subset(self, indices: Tensor) -> "Tokens":
        return Tokens(self.source.subset(indices), self.tokens[indices])


class Words:
    """What sentences know before anything is learned: tf-idf of their words, of tokens or of texts."""

    protocols = ("knn", "similarity")  # on thousands of words a linear probe takes longest and finds little more

    def __init__(self, texts: TextDataset, tokenizer: Tokenizer) -> None:
        self.tfidf, self.tokenizer = TfIdf([*texts.texts, *(texts.partners or ())], most=_TERMS), tokenizer

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.tfidf(self.tokenizer.decode(tokens))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        return self.tfidf(texts)


def as_they_are(tokens: Tensor) -> Tensor:
    """Tokens are the encoder's input."""
    return tokens


class Texts:
    """Sentences, one to a line or from a table."""

    raw = None
    protocols = ("knn", "linear")

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.preparation = config, as_they_are
        self.tokenizer = None if config.text.tokenizer is None else load_tokenizer(config)

    def open(self, spec: str, *, split: str | None = None, groups: str | None = None) -> Dataset:
        sources = self.config.sources
        texts = open_texts(
            spec,
            text_column=sources.text_column,
            label_column=sources.label_column,
            group_column=sources.group_column,
            split=split,
        )
        return Tokens(texts, self.learned_from(texts.texts).encode(texts.texts).to(torch.int32))

    def learned_from(self, texts: Sequence[str]) -> Tokenizer:
        """The tokenizer, which the first texts that are opened teach where none was given."""
        if self.tokenizer is None:
            self.tokenizer = Tokenizer.train(
                texts, vocabulary=self.config.text.vocabulary, length=self.config.text.length
            )
        return self.tokenizer

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        return make_text_encoder(self.config, self.config.backbone, untrained=untrained, dropout=DROPOUT)

    def views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        return [samples, samples]

    two_views = views

    def ids(self, source: Dataset) -> Tensor:
        """Equal for sentences of one group, and for sentences that say the same."""
        assert isinstance(source, Tokens)
        alike = caption_ids(source.texts)
        return alike if source.groups is None else merged_ids(source.groups, alike)

    def baseline(self, train: Dataset) -> Callable[[Tensor], Tensor]:
        assert isinstance(train, Tokens) and self.tokenizer is not None
        return Words(train.source, self.tokenizer)

    def card(self) -> dict[str, Any]:
        return {"modality": "text", "preprocessing": "tokens by tokenizer.json, 0 where there is no text"}

    def show(self, source: Dataset, folder: Path) -> str:
        assert self.tokenizer is not None
        file = self.tokenizer.save(folder)
        return f"tokens: {self.tokenizer.vocabulary:,} in {file}; dropout makes the views"


def load_tokenizer(config: TrainConfig) -> Tokenizer:
    assert config.text.tokenizer is not None
    return Tokenizer.load(config.text.tokenizer, length=config.text.length)


def make_text_encoder(config: TrainConfig, name: str, *, untrained: bool, dropout: float) -> nn.Module:
    """A text encoder as a run has it.

    Args:
        dropout: where the configuration does not say.
    """
    text = config.text
    vocabulary = text.vocabulary if text.tokenizer is None else load_tokenizer(config).vocabulary
    return text_encoder(
        name,
        vocabulary=vocabulary,
        length=text.length,
        pooling=text.pooling,
        causal=text.causal,
        dropout=dropout if text.dropout is None else text.dropout,
        pretrained=config.pretrained and not untrained,
    )
