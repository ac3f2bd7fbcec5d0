"""Sentences: tokens by a tokenizer learned from them, a Transformer, and for views dropout, or what belongs to them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.config import DataConfig, TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.data.groups import caption_ids, merged_ids
from nearfar.modalities.text.data import TextDataset, open_texts
from nearfar.modalities.text.encoders import text_encoder
from nearfar.modalities.text.tfidf import TfIdf
from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.nn.part import Part

DROPOUT = 0.1  # of an encoder whose only view it is


class Tokens:
    """Texts as a data set of tokens: what `fetch` gives is (B, L) int64, 0 where there is no text."""

    captions = None
    size = 0

    def __init__(
        self, texts: TextDataset, tokens: Tensor, partners: Tensor | None = None, negatives: Tensor | None = None
    ) -> None:
        """
        Args:
            tokens: (N, L).
            partners, negatives: the same of the texts that belong to them, and that do not.
        """
        self.source, self.tokens, self.partners, self.negatives = texts, tokens, partners, negatives
        self.texts: Sequence[str] = texts.texts
        self.labels, self.classes, self.groups = texts.labels, texts.classes, texts.groups
        self.names, self.skipped = texts.names, texts.skipped

    def __len__(self) -> int:
        return len(self.tokens)

    def fetch(self, indices: Tensor) -> Tensor:
        return self.tokens[indices.cpu()].long()

    def subset(self, indices: Tensor) -> "Tokens":
        others = (None if x is None else x[indices] for x in (self.partners, self.negatives))
        return Tokens(self.source.subset(indices), self.tokens[indices], *others)

    def others(self, indices: Tensor) -> list[Tensor]:
        """Of (B,) texts their partners, then their negatives, as far as there are some: each (B, L)."""
        return [x[indices.cpu()].long() for x in (self.partners, self.negatives) if x is not None]

    @property
    def said(self) -> Iterator[str]:
        """Every text."""
        return chain(self.source.texts, self.source.partners or (), self.source.negatives or ())


def sentences_of(
    spec: str, sources: DataConfig, tokenizer: Tokenizer, *, split: str | None = None, labels: bool | None = None
) -> Tokens:
    """Every sentence of a file, those of pairs one by one, each named by its own words: to embed and to search."""
    texts = open_texts(
        spec,
        text_column=sources.text_column,
        partner_column=sources.partner_column,
        label_column=sources.label_column,
        split=split,
        labels=labels,
    ).sentences()
    return Tokens(replace(texts, names=texts.texts), tokenizer.encode(texts.texts).to(torch.int32))


class Words:
    """What sentences know before anything is learned: tf-idf of all their words, in sparse rows.

    Terms and idf are those of all sentences that take part, as `TfidfVectorizer.fit` would be given them: no label and
    no score is used. Pairs are compared by the idf of the compared sentences alone, which serves them best.

    Args:
        train, test: the texts of both parts.
        tokenizer: turns tokens back into texts, where there are tokens alone.
    """

    protocols = ("knn", "linear", "similarity")

    def __init__(self, train: TextDataset, test: TextDataset, tokenizer: Tokenizer) -> None:
        texts = [text for part in (train, test) for text in (*part.texts, *(part.partners or ()))]
        self.tfidf, self.tokenizer = TfIdf(texts), tokenizer

    def sparse_rows(self, data: Tokens, rows: Tensor) -> Tensor:
        """(K,) numbers of texts to (K, V): memory is that of the words."""
        return self.tfidf.sparse([data.texts[row] for row in rows.tolist()])

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """(P,) of pairs of texts."""
        return TfIdf([*first, *second]).cosines(first, second)

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.embed_texts(self.tokenizer.decode(tokens))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(B, V), dense: for a few texts."""
        return self.tfidf(texts)


def as_they_are(tokens: Tensor) -> Tensor:
    """Tokens are the encoder's input."""
    return tokens


class Texts:
    """Sentences, one to a line or from a table."""

    raw = None

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.preparation = config, as_they_are
        self.protocols: Sequence[str] = ("knn", "linear")
        self.judged = False  # whether there are pairs whose score or label says how far they belong together
        self.tokenizer = None if config.text.tokenizer is None else load_tokenizer(config)

    def open(self, spec: str, *, split: str | None = None, groups: str | None = None) -> Dataset:
        sources = self.config.sources
        texts = open_texts(
            spec,
            text_column=sources.text_column,
            partner_column=sources.partner_column,
            negative_column=sources.negative_column,
            label_column=sources.label_column,
            group_column=sources.group_column,
            split=split if Path(spec).expanduser().is_dir() else None,  # a file is given whole
        )
        if split == "test" and texts.scores is not None:  # how far do the embeddings agree with people?
            self.protocols = ("similarity", *(("knn", "linear") if texts.labels is not None else ()))
            return Tokens(texts, self.learned_from(texts.texts).encode(texts.texts).to(torch.int32))
        self.judged = texts.partners is not None and not texts.paired
        if sources.labels is False:
            texts = replace(texts, labels=None, classes=None)
        if self.judged:
            texts = texts.sentences()
        several = [part for part in (texts.texts, texts.partners, texts.negatives) if part is not None]
        tokenizer = self.learned_from([text for part in several for text in part])
        return Tokens(texts, *(tokenizer.encode(part).to(torch.int32) for part in several))

    def learned_from(self, texts: Sequence[str]) -> Tokenizer:
        """The tokenizer, which the first texts that are opened teach where none was given."""
        if self.tokenizer is None:
            self.tokenizer = Tokenizer.train(
                texts, vocabulary=self.config.text.vocabulary, length=self.config.text.length
            )
        return self.tokenizer

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        return make_text_encoder(self.config, self.config.backbone, untrained=untrained, dropout=DROPOUT)

    def options(self) -> dict[str, Any]:
        given = self.tokenizer if self.config.text.tokenizer is not None else None
        return {} if given is None else {"mask_token": given.mask, "special_tokens": given.special}

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, part: Part | None = None
    ) -> list[Tensor]:
        """The sentence, its partner and its negative; or, alone, the sentence twice."""
        assert isinstance(source, Tokens)
        others = [x.to(samples.device) for x in source.others(index)]
        return [samples, *(others or [samples])]

    def two_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        return self.views(samples, source, index, seed=seed, step=step)[:2]

    def ids(self, source: Dataset) -> Tensor:
        """Equal for sentences of one group, and for sentences that say the same, or whose partners do."""
        assert isinstance(source, Tokens)
        alike = caption_ids(source.texts)
        if source.partners is not None:
            assert source.source.partners is not None
            said = caption_ids([*source.texts, *source.source.partners])  # (2N,)
            alike = merged_ids(torch.arange(len(source)).repeat(2), said)[: len(source)]
        return alike if source.groups is None else merged_ids(source.groups, alike)

    def baseline(self, train: Dataset, test: Dataset) -> Callable[[Tensor], Tensor]:
        assert isinstance(train, Tokens) and isinstance(test, Tokens) and self.tokenizer is not None
        return Words(train.source, test.source, self.tokenizer)

    def card(self) -> dict[str, Any]:
        return {"modality": "text", "preprocessing": "tokens by tokenizer.json, 0 where there is no text"}

    def pictures(self, samples: Tensor, side: int) -> None:
        """A text is read, not looked at."""

    def show(self, source: Dataset, folder: Path) -> str:
        assert self.tokenizer is not None
        file = self.tokenizer.save(folder)
        assert isinstance(source, Tokens)
        views = (
            "dropout makes the views",
            "the second view of a sentence is its partner",
            "the second view of a sentence is its partner, and the third texts are negatives of all",
        )[len(source.others(torch.arange(1)))]
        if self.judged:
            views += "; pairs with a score or a label may be no positives: each text is a sentence of its own"
        return f"tokens: {self.tokenizer.vocabulary:,} in {file}; {views}{cut(source.tokens, self.config.text.length)}"


def cut(tokens: Tensor, length: int) -> str:
    """Words about the texts that may have lost their end, if there are any.

    >>> cut(torch.tensor([[1, 5, 2], [1, 2, 0]]), 3)
    '; 1 of 2 texts fill the 3 tokens of --text.length and may be cut off there'
    """
    full = int((tokens[:, -1] != 0).sum()) if tokens.shape[1] == length else 0
    words = f"; {full:,} of {len(tokens):,} texts fill the {length} tokens of --text.length and may be cut off there"
    return words if full else ""


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
