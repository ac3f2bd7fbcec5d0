"""Images and their captions: a tower for each, one view of the image, and one of its captions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.dataset import Captions, Dataset, Skipped
from nearfar.data.groups import caption_ids, merged_ids
from nearfar.modalities.image.modality import Images
from nearfar.modalities.image.views.grid import ROWS
from nearfar.modalities.image.views.presets import make_views
from nearfar.modalities.text.modality import cut, load_tokenizer, make_text_encoder
from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.nn.part import Part, rows_of
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.towers import TwoTowers

_CHAINED = 0.05  # part of all images that equal captions may join
_CAPTION = 1  # number of the view that is a caption


class Captioned:
    """Images with their captions as tokens.

    Args:
        images: with captions.
        tokens: (C, L) of all captions.
        first: (N,) the row of an image's first caption; the others follow it.
    """

    def __init__(self, images: Dataset, tokens: Tensor, first: Tensor) -> None:
        assert images.captions is not None
        self.images, self.tokens, self.first = images, tokens, first
        self.counts = torch.tensor([len(captions) for captions in images.captions])  # (N,)
        self.captions: Captions = images.captions
        self.labels, self.classes, self.groups = images.labels, images.classes, images.groups
        self.names, self.size = images.names, images.size
        self.parts: Tensor | None = getattr(images, "parts", None)

    @property
    def skipped(self) -> Sequence[Skipped]:
        return self.images.skipped

    def __len__(self) -> int:
        return len(self.images)

    def fetch(self, indices: Tensor) -> Tensor:
        return self.images.fetch(indices)

    def subset(self, indices: Tensor) -> "Captioned":
        return Captioned(self.images.subset(indices), self.tokens, self.first[indices])

    def draw(self, indices: Tensor, generator: torch.Generator, part: Part | None = None) -> Tensor:
        """(B,) images to (B, L) tokens, of each one of its captions."""
        counts = self.counts[indices]
        chance = torch.rand(rows_of(part, len(indices)), generator=generator, dtype=torch.float64)
        number = ((chance if part is None else part.own(chance)) * counts).long()
        return self.tokens[self.first[indices] + number].long()


class Pairs(Images):
    """Images whose captions are their other view."""

    protocols = ("knn", "linear", "zero_shot", "captions")
    captions = True

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.recipes = self.recipes[:1]
        self.tokenizer = None if config.text.tokenizer is None else load_tokenizer(config)

    def open(self, spec: str, *, split: str | None = None, groups: str | None = None) -> Dataset:
        images = super().open(spec, split=split, groups=groups)
        if images.captions is None:
            raise ValueError(
                f"{spec} has no captions, which {self.config.method} learns from; expected a table with the columns "
                "path and caption, captions of COCO or Flickr, shards, or glyphs"
            )
        texts = [text for captions in images.captions for text in captions]
        if self.tokenizer is None:  # the first captions that are opened teach it
            text = self.config.text
            self.tokenizer = Tokenizer.train(texts, vocabulary=text.vocabulary, length=text.length)
        counts = torch.tensor([len(captions) for captions in images.captions])
        return Captioned(images, self.tokenizer.encode(texts).to(torch.int32), counts.cumsum(0) - counts)

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        texts = make_text_encoder(self.config, self.config.text.encoder, untrained=untrained, dropout=0.0)
        return TwoTowers(super().encoder(untrained=untrained), texts, dim=self.config.text.dim)

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, part: Part | None = None
    ) -> list[Tensor]:
        assert isinstance(source, Captioned)
        images = super().views(samples, source, index, seed=seed, step=step, part=part)
        return [*images, source.draw(index.cpu(), seeded_generator(seed, step, _CAPTION), part).to(samples.device)]

    def views_in_parts(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, part: Part | None = None
    ) -> Callable[[slice], list[Tensor]]:
        assert isinstance(source, Captioned)
        images = super().views_in_parts(samples, source, index, seed=seed, step=step, part=part)
        tokens = source.draw(index.cpu(), seeded_generator(seed, step, _CAPTION), part).to(samples.device)
        return lambda rows: [*images(rows), tokens[rows]]

    def two_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        assert isinstance(source, Captioned)
        images = make_views(samples, self.recipes, seed=seed, step=step)
        return [*images, source.draw(index.cpu(), seeded_generator(seed, step, _CAPTION)).to(samples.device)]

    def ids(self, source: Dataset) -> Tensor:
        """Equal for images of one group, and for images of which any captions say the same.

        Being equal holds along chains: "a red circle" and "a circle", "a circle" and "a blue one". Where these join a
        good part of all images, so that hardly a negative is left, images are equal if their captions are all the same.
        """
        assert isinstance(source, Captioned)
        owner = torch.arange(len(source)).repeat_interleave(source.counts)  # (C,)
        texts = [text for captions in source.captions for text in captions]
        first = source.counts.cumsum(0) - source.counts
        merged = merged_ids(super().ids(source)[owner], caption_ids(texts))[first]
        if int(merged.bincount().max()) <= _CHAINED * len(source):
            return merged
        return merged_ids(super().ids(source), caption_ids(["\n".join(sorted(said)) for said in source.captions]))

    def card(self) -> dict[str, Any]:
        return {**super().card(), "modality": "image-text"}

    def show(self, source: Dataset, folder: Path) -> str:
        assert self.tokenizer is not None
        file = self.tokenizer.save(folder)
        assert isinstance(source, Captioned)
        rows = torch.arange(min(ROWS, len(source)))
        drawn = source.draw(rows, seeded_generator(self.config.seed, 0, _CAPTION))
        said = [" ".join(text.split()) for text in self.tokenizer.decode(drawn)]
        (folder / "views.txt").write_text("".join(f"{text}\n" for text in said), encoding="utf-8")
        line = f"{super().show(source, folder)}; {self.tokenizer.vocabulary:,} tokens in {file}"
        return line + cut(source.tokens, self.config.text.length)
