"""Sentences: tokens by a tokenizer learned from them, a Transformer; views are dropout, or the sentence's partner."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset, counted
from nearfar.data.groups import caption_ids, merged_ids
from nearfar.data.sources import TEST_FOLDERS
from nearfar.data.table_kind import has_paths, has_texts, table_file
from nearfar.methods import Batch, choose_views, known_method
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.base import Modality
from nearfar.modalities.baseline import Baseline
from nearfar.modalities.splits import table_splits
from nearfar.modalities.text.automatic import choose, look_at
from nearfar.modalities.text.data import TextDataset, open_texts
from nearfar.modalities.text.encoders import BAG, text_encoder
from nearfar.modalities.text.sentence_transformers import write_modules
from nearfar.modalities.text.start import (
    begin,
    fill_head,
    model_source,
    unread_modules,
    with_absolute_folder,
    with_start,
)
from nearfar.modalities.text.tfidf import TfIdfBaseline
from nearfar.modalities.text.tokenizer import FILE, Tokenizer
from nearfar.modalities.text.views import without_words
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.shard import Shard
from nearfar.python_objects import is_object
from nearfar.weights.huggingface import TRANSFORMERS, keep_config, kept_backbone
from nearfar.weights.names import parse_name

DROPOUT = 0.1  # of an encoder whose only view it is


class TokenizingModality(Modality):
    """What sentences and captions share: a tokenizer, given or learned by `fit`."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.tokenizer = None if config.text.tokenizer is None else load_tokenizer(config)

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """N texts to (N, L) integers, 0 where there is no text."""
        if self.tokenizer is None:
            raise ValueError("there is no tokenizer yet: fit(data) learns one, or --text.tokenizer names one")
        if isinstance(texts, str):
            raise TypeError(f"texts is one text, {texts[:40]!r}, expected a list of them")
        return self.tokenizer.encode(list(texts))

    @property
    def _tokenizer(self) -> Tokenizer:
        """The tokenizer, which is there once data were opened."""
        assert self.tokenizer is not None
        return self.tokenizer

    def learn_tokenizer(self, texts: Sequence[str]) -> None:
        text = self.config.text
        if self.tokenizer is None:
            self.tokenizer = Tokenizer.train(texts, vocab_size=text.vocab_size, max_length=text.max_length)

    @property
    def text_backbone(self) -> str:
        """The name of the text encoder."""
        return self.config.text.encoder

    def save(self, folder: Path) -> None:
        """The tokenizer, and the architecture of a model of transformers: its own folder may be gone one day."""
        self._tokenizer.save(folder)
        super().save(folder)
        keep_config(self.text_backbone, folder)

    def save_library_model(self, network: nn.Module, folder: Path, transform: nn.Module | None = None) -> str | None:
        """An encoder of texts alone as a folder of sentence-transformers."""
        return write_modules(network, self._tokenizer, transform, folder) if self.queries == ("text",) else None

    def tokenizer_file(self, folder: Path, name: str) -> Path:
        return self._tokenizer.save(folder, name)

    @classmethod
    def load(cls, config: TrainConfig, card: Mapping[str, Any], folder: Path) -> Self:
        if config.text.tokenizer is not None:  # a given tokenizer lies beside the weights as a copy
            config = replace(config, text=replace(config.text, tokenizer=str(folder)))
        if (kept := kept_backbone(folder)) is not None:
            config = cls.with_text_backbone(config, kept)
        made = super().load(config, card, folder)
        made.tokenizer = Tokenizer.load(folder, max_length=config.text.max_length)
        return made

    @classmethod
    def with_text_backbone(cls, config: TrainConfig, name: str) -> TrainConfig:
        """The settings with another name of the text encoder."""
        return replace(config, text=replace(config.text, encoder=name))


class TextModality(TokenizingModality):
    """Sentences, one to a line or from a table."""

    name = "text"
    noun = "sentences"
    endings = (".txt",)
    queries = ("text",)
    baseline_name = "tf-idf of all words, idf of all sentences compared"
    reads_texts = True

    @classmethod
    def recognizes(cls, data: str) -> bool:
        file = None if is_object(data) else table_file(data)
        return file is not None and has_texts(file) and not has_paths(file)

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.views.local:
            raise ValueError(f"--views.local is {config.views.local}, and sentences have no local views")
        # How often a sentence without a partner is read, each time under another dropout.
        self.readings = len(choose_views(config.method, "", ["dropout"] * 2, count=config.views.count))

    @classmethod
    def defaults(cls, data: str) -> dict[str, Any]:
        return {"backbone": "text-tiny", "batch_size": 64, "optimizer": {"name": "adamw"}}

    @classmethod
    def automatic(cls, request: Request) -> Automatic:
        named = request.given.get("backbone") or request.given.get("text", {}).get("encoder")
        masked = {"mlm", "warmup"} & set(request.given.get("options", {}))  # masked words need a Transformer
        if ((named or masked) and not request.starts_from_weights) or (facts := look_at(request)) is None:
            return Automatic()
        return choose(request, facts)

    @classmethod
    def complete(cls, given: Mapping[str, Any], merged: dict[str, Any]) -> None:
        """The encoder may be named as an image's text encoder is; a model of transformers reads its own tokens."""
        text = dict(given.get("text") or {})
        if text.get("encoder") and not given.get("backbone"):
            merged["backbone"] = text["encoder"]
        if weights := merged.get("weights") or text.get("weights"):
            named = {"encoder": merged["backbone"]} if given.get("backbone") or text.get("encoder") else {}
            text = with_start({**text, **named}, str(weights))
            merged["backbone"], merged["weights"] = text.get("encoder", merged["backbone"]), text["weights"]
        name = with_absolute_folder(str(merged.get("backbone") or ""))
        if name.startswith(TRANSFORMERS):
            merged["backbone"] = name
            text = {"tokenizer": name.removeprefix(TRANSFORMERS), **text}
        merged["text"] = {
            **(merged.get("text") or {}),
            **text,
            "encoder": merged["backbone"],
        }  # one encoder, by both of its names

    # Data

    def open(self, spec: str, split: str | None = None) -> TextDataset:
        return open_texts(spec, self.config.data, split=split, tokenize=self.tokenize)

    def open_to_embed(self, spec: str, split: str | None = None) -> TextDataset:
        """Every sentence of a file, those of pairs one by one, each named by its own words."""
        data = self.open(spec, split).sentences()
        data.names = data.texts
        return data

    def own_splits(self, spec: str) -> tuple[str, str] | None:
        folder = Path(spec).expanduser()
        if not folder.is_dir():
            return table_splits(spec)
        test = next((name for name in TEST_FOLDERS if any(folder.glob(f"{name}.*"))), None)
        return ("train", test) if test is not None and any(folder.glob("train.*")) else None

    def for_training(self, data: Dataset) -> Dataset:
        """Pairs with a score or label may not be positives: then, without `positive_score`, each text is a sentence."""
        assert isinstance(data, TextDataset)
        least, count = self.config.data.positive_score, self.config.views.count
        if data.scores is not None and known_method(self.config.method).needs_scores:
            return data
        data = data if least is None else data.positives(least)
        if data.paired and count not in (None, 2):
            raise ValueError(f"--views.count is {count}, but these texts come in pairs, which are the views; omit it")
        return data if data.paired else data.sentences()

    def fit(self, data: Dataset) -> TrainConfig:
        """Learn a tokenizer, unless one is given; by the recipe "paper" an encoder of pairs keeps its head."""
        assert isinstance(data, TextDataset)
        self.learn_tokenizer([text for part in data.text_columns for text in part])
        if self.config.text.head is not None or self.config.recipe != "paper":
            return self.config
        return replace(self.config, text=replace(self.config.text, head=data.partners is not None))

    def run_protocols(self, test: Dataset) -> Sequence[str]:
        if test.scores is None:
            return self.protocols
        return ("similarity", *(self.protocols if test.labels is not None else ()))

    def ids(self, source: Dataset) -> Tensor:
        """Equal for sentences of one group, and for sentences that say the same, or whose partners do."""
        assert isinstance(source, TextDataset)
        same = caption_ids(source.texts)
        if source.partners is not None:
            either = caption_ids([*source.texts, *source.partners])  # (2N,)
            same = merged_ids(torch.arange(len(source)).repeat(2), either)[: len(source)]
        return same if source.groups is None else merged_ids(source.groups, same)

    # From sentences to the encoder

    @property
    def text_backbone(self) -> str:
        return self.config.backbone

    @classmethod
    def with_text_backbone(cls, config: TrainConfig, name: str) -> TrainConfig:
        return replace(super().with_text_backbone(config, name), backbone=name)

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        return make_text_encoder(self.config, self.config.backbone, untrained=untrained, dropout=DROPOUT)

    def method_options(self) -> dict[str, Any]:
        given = self.tokenizer if self.config.text.tokenizer is not None else None
        return {} if given is None else {"mask_token": given.mask, "special_tokens": given.special}

    def prepare(self, samples: Tensor) -> Tensor:
        """Tokens are the encoder's input."""
        return samples

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        """The sentence, its partner and its negatives; without partners the sentence, as often as it is read.

        With `drop_words` each reading leaves out other words.
        """
        assert isinstance(source, TextDataset)
        others = [x[index.cpu()].long().to(samples.device) for x in source.tokens[1:]]
        if others or not (dropped := self.config.text.drop_words):
            return [samples, *others] if others else [samples] * self.readings
        draws = (seeded_generator(seed, step, reading) for reading in range(self.readings))
        return [without_words(samples, dropped, self._tokenizer, draw, shard) for draw in draws]

    def guide_items(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[tuple[str, Any]]:
        """The texts: a guide has its own tokenizer."""
        return [("text", list(column)) for column in source.subset(index.cpu()).text_columns]

    def pair_of_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        views = self.views(samples, source, index, seed=seed, step=step)[:2]
        return views if len(views) > 1 else views * 2

    def vary(self, samples: Tensor, generator: torch.Generator, *, strong: bool = False) -> Tensor:
        return without_words(samples, 0.5 if strong else 0.3, self._tokenizer, generator)

    def as_batch(
        self, views: Sequence[Tensor], source: Dataset, index: Tensor, ids: Tensor, labels: Tensor | None = None
    ) -> Batch:
        """The texts after a pair do not go with it; all other views say the same."""
        assert isinstance(source, TextDataset)
        return replace(super().as_batch(views, source, index, ids, labels), negatives=max(0, len(source.tokens) - 2))

    def baseline(self, train: Dataset, test: Dataset) -> Baseline:
        return TfIdfBaseline(train, test, self._tokenizer)

    # Single sentences

    def read(self, item: Any, kind: str | None = None) -> Tensor:
        if not isinstance(item, str):
            raise TypeError(f"an item is a {type(item).__name__}, expected a text")
        return self.tokenize([item])[0]

    def batch(self, items: Sequence[Any], kind: str | None = None) -> Tensor:
        return self.tokenize(items)

    # Files

    def card(self) -> dict[str, Any]:
        return {"modality": self.name, "preprocessing": "tokens by tokenizer.json, 0 where there is no text"}

    def show(self, source: Dataset, folder: Path) -> str:
        assert self.tokenizer is not None and isinstance(source, TextDataset)
        self.save(folder)
        file, dropped = folder / FILE, self.config.text.drop_words
        views = (
            f"each view leaves out {dropped:.0%} of the words" if dropped else "dropout makes the views",
            "the second view of a sentence is its partner",
            f"the second view of a sentence is its partner, and {counted(len(source.tokens) - 2, 'negative')} of all",
        )[min(len(source.tokens), 3) - 1]
        tokens = f"tokens: {self.tokenizer.vocab_size:,} in {file}; {views}"
        return tokens + cut_note(source.tokens[0], self.config.text.max_length)


def cut_note(tokens: Tensor, max_length: int) -> str:
    """Words about the texts that may have lost their end, if there are any.

    >>> cut_note(torch.tensor([[1, 5, 2], [1, 2, 0]]), 3)
    '; 1 of 2 texts fill the 3 tokens of --text.max_length and may be cut off there'
    """
    full = int((tokens[:, -1] != 0).sum()) if tokens.shape[1] == max_length else 0
    cut = f"texts fill the {max_length} tokens of --text.max_length and may be cut off there"
    return f"; {full:,} of {len(tokens):,} {cut}" if full else ""


def load_tokenizer(config: TrainConfig) -> Tokenizer:
    assert config.text.tokenizer is not None
    return Tokenizer.load(config.text.tokenizer, max_length=config.text.max_length)


def make_text_encoder(config: TrainConfig, name: str, *, untrained: bool, dropout: float) -> nn.Module:
    """A text encoder as a run has it.

    Args:
        dropout: where the configuration does not say.
    """
    text = config.text
    given = text.weights or (config.weights if config.kind == "text" else None)
    start = None if given is None or untrained else parse_name(given)
    tokenizer = None if text.tokenizer is None else load_tokenizer(config)
    library = name.startswith(TRANSFORMERS)
    source = model_source(start) if start is not None and library else None
    published = source is not None or (config.pretrained and (library or config.kind == "text"))
    network = text_encoder(
        name if source is None else TRANSFORMERS + source,
        vocab_size=text.vocab_size if tokenizer is None else tokenizer.vocab_size,
        max_length=text.max_length,
        pooling=text.pooling,
        causal=text.causal,
        dropout=dropout if text.dropout is None else text.dropout,
        quick_gelu=text.quick_gelu,
        head=bool(text.head),
        normalize=text.normalize,
        pretrained=published and not untrained,
    )
    if tokenizer is not None and name == BAG:
        network.leave_out(tokenizer.special)  # type: ignore[operator]
    if start is not None:
        if source is not None:
            fill_head(network, source)
            left = unread_modules(source)
            without = f"; left out: {', '.join(left)}" if left else ""
            told = f"{start}: its published weights, tokenizer and {text.pooling} pooling{without}"
            setattr(network, "loaded", told)  # noqa: B010, which torch's annotation refuses
        else:
            begin(network, start, name)
    elif published and not untrained:
        setattr(network, "loaded", f"published weights of {name}")  # noqa: B010
    return network
