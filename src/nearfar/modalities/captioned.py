"""What captioned images and captioned sounds share: samples with captions as tokens, and two towers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.dataset import Captions, Dataset, Skipped
from nearfar.data.groups import caption_ids, merged_ids
from nearfar.modalities.picture_grid import rows_to_show
from nearfar.modalities.text.data import Tokenize
from nearfar.modalities.text.modality import TokenizingModality, cut_note, make_text_encoder
from nearfar.modalities.text.start import with_absolute_folder, with_start
from nearfar.modalities.text.tokenizer import FILE
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.shard import Shard
from nearfar.nn.text import trim_padding
from nearfar.nn.towers import TwoTowers
from nearfar.weights.huggingface import TRANSFORMERS

_CHAINED = 0.05  # fraction of all samples that equal captions may join
_CAPTION = 1  # number of the view that is a caption


class CaptionedSamples(Dataset):
    """Samples with captions, tokenized when the first are needed.

    Args:
        samples: images or sounds, with captions.
        tokenize: texts to (C, L) tokens.
        tokens: (C, L) of all captions, if they are known already.
        first: (N,) the row of a sample's first caption; the others follow it.
    """

    captions: Captions

    def __init__(
        self, samples: Dataset, tokenize: Tokenize, tokens: Tensor | None = None, first: Tensor | None = None
    ) -> None:
        assert samples.captions is not None
        self.samples, self.tokenize, self._tokens = samples, tokenize, tokens
        self.captions = samples.captions
        self.counts = torch.tensor([len(captions) for captions in samples.captions])  # (N,)
        self.first = self.counts.cumsum(0) - self.counts if first is None else first
        self.labels, self.classes, self.groups = samples.labels, samples.classes, samples.groups
        self.names, self.size, self.shards = samples.names, samples.size, samples.shards

    @property
    def skipped(self) -> Sequence[Skipped]:  # type: ignore[override]
        return self.samples.skipped

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
        return len(self.samples)

    def fetch(self, indices: Tensor) -> Tensor:
        return self.samples.fetch(indices)

    def failed(self, indices: Tensor) -> dict[int, Skipped]:
        return self.samples.failed(indices)

    def subset(self, indices: Tensor) -> "CaptionedSamples":
        if self._tokens is None:  # a tokenizer may still have to be learned
            return CaptionedSamples(self.samples.subset(indices), self.tokenize)
        return CaptionedSamples(self.samples.subset(indices), self.tokenize, self._tokens, self.first[indices])

    def draw(self, indices: Tensor, generator: torch.Generator, shard: Shard | None = None) -> Tensor:
        """(B,) samples to (B, L) tokens, of each one of its captions."""
        return self.tokens[self.first[indices] + self.draw_numbers(indices, generator, shard)].long()

    def draw_numbers(self, indices: Tensor, generator: torch.Generator, shard: Shard | None = None) -> Tensor:
        """(B,) samples to (B,) which of its captions is drawn for each."""
        chance = torch.rand(len(indices) if shard is None else shard.total, generator=generator, dtype=torch.float64)
        return ((chance if shard is None else shard.select(chance)) * self.counts[indices]).long()


class CaptionedModality(TokenizingModality):
    """Samples whose captions are their other view; in front of the modality of the samples among the bases."""

    reads_texts = True
    captions: bool | None = None  # read if there are some
    how_captioned: ClassVar[str] = "a table with the columns path and caption"  # in messages

    @classmethod
    def complete(cls, given: Mapping[str, Any], merged: dict[str, Any]) -> None:
        """Each tower's weights bring its encoder with them; one of transformers reads its own tokens."""
        super().complete(given, merged)
        text = dict(given.get("text") or {})
        if text.get("weights"):
            merged["text"] = text = with_start(text, str(text["weights"]))
        name = with_absolute_folder(str(text.get("encoder") or ""))
        if name.startswith(TRANSFORMERS):
            plain = {"causal": False, "quick_gelu": False} if given.get("recipe") == "paper" else {}  # it has its own
            merged["text"] = {"tokenizer": name.removeprefix(TRANSFORMERS), **plain, **text, "encoder": name}

    def open(self, spec: str, split: str | None = None) -> Dataset:
        samples = super().open(spec, split)  # type: ignore[safe-super]
        return samples if samples.captions is None else CaptionedSamples(samples, self.tokenize)

    def for_training(self, data: Dataset) -> Dataset:
        if data.captions is None:
            raise ValueError(
                f"{self.config.data.path} has no captions, which {self.config.method} learns from; expected "
                f"{self.how_captioned}"
            )
        return data

    def fit(self, data: Dataset) -> TrainConfig:
        """Learn a tokenizer from the captions, unless one is given."""
        assert isinstance(data, CaptionedSamples)
        self.learn_tokenizer(data.all_texts)
        return super().fit(data)

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        first = super().encoder(untrained=untrained)  # type: ignore[safe-super]
        texts = make_text_encoder(self.config, self.config.text.encoder, untrained=untrained, dropout=0.0)
        text = self.config.text
        return TwoTowers(first, texts, embed_dim=text.embed_dim, second_hidden=text.projection_width)

    def from_array(self, samples: NDArray[Any] | Tensor, kind: str | None = None) -> tuple[Any, bool]:
        return (samples, False) if kind == "text" else super().from_array(samples, kind)  # the first: token ids (B, L)

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        if source.tower_features is not None:
            seen = [source.tower_features[index.cpu()].to(samples.device)]
        else:
            seen = super().views(samples, source, index, seed=seed, step=step, shard=shard)  # type: ignore[safe-super]
        return [*seen, self._captions(samples, source, index, seed, step, shard)]

    def pair_of_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        first, *_ = super().pair_of_views(samples, source, index, seed=seed, step=step)  # type: ignore[safe-super]
        return [first, self._captions(samples, source, index, seed, step)]

    def guide_items(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[tuple[str, Any]]:
        """The samples, and the captions that are drawn for them in this step."""
        assert isinstance(source, CaptionedSamples)
        numbers = source.draw_numbers(index.cpu(), seeded_generator(seed, step, _CAPTION), shard).tolist()
        texts = [source.captions[row][number] for row, number in zip(index.tolist(), numbers, strict=True)]
        return [(self.queries[0], samples), ("text", texts)]

    def _captions(
        self, samples: Tensor, source: Dataset, index: Tensor, seed: int, step: int, shard: Shard | None = None
    ) -> Tensor:
        assert isinstance(source, CaptionedSamples)
        tokens = source.draw(index.cpu(), seeded_generator(seed, step, _CAPTION), shard)
        if samples.device.type != "cpu":  # there nobody will look where padding begins
            tokens = trim_padding(tokens)
        return tokens.to(samples.device, non_blocking=True)

    def ids(self, source: Dataset) -> Tensor:
        """Equal for samples of one group, and for samples of which any captions say the same.

        Being equal holds along chains: "a red circle" and "a circle", "a circle" and "a blue one". Where these join a
        good part of all samples, so that hardly a negative is left, samples are equal if all their captions are.
        """
        assert isinstance(source, CaptionedSamples)
        owner = torch.arange(len(source)).repeat_interleave(source.counts)  # (C,)
        first = source.counts.cumsum(0) - source.counts
        merged = merged_ids(super().ids(source)[owner], caption_ids(source.all_texts))[first]
        if int(merged.bincount().max()) <= _CHAINED * len(source):
            return merged
        return merged_ids(super().ids(source), caption_ids(["\n".join(sorted(said)) for said in source.captions]))

    # Single items: a text, or what samples are read from

    def item_kind(self, item: Any) -> str:
        if not isinstance(item, str):
            return self.queries[0]
        path = Path(item).expanduser()
        return self.queries[0] if path.suffix.lower() in self.suffixes and path.is_file() else "text"

    def batch(self, items: Sequence[Any] | NDArray[Any], kind: str | None = None) -> Tensor:
        return self.tokenize(list(items)) if kind == "text" else super().batch(list(items), kind)

    def run_encoder(self, network: nn.Module, x: Tensor, kind: str) -> Tensor:
        if kind == "text":
            h: Tensor = network.second(x)  # type: ignore[operator]
            return h
        return super().run_encoder(network, x, kind)

    def show(self, source: Dataset, folder: Path) -> str:
        assert self.tokenizer is not None and isinstance(source, CaptionedSamples)
        file = folder / FILE
        rows = rows_to_show(len(source), self.config.seed)
        drawn = source.draw(rows, seeded_generator(self.config.seed, 0, _CAPTION))
        texts = [" ".join(text.split()) for text in self.tokenizer.decode(drawn)]
        (folder / "views.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        line = f"{super().show(source.samples, folder)}; {self.tokenizer.vocab_size:,} tokens in {file}"
        return line + cut_note(source.tokens, self.config.text.max_length)
