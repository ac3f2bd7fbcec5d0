"""Images and their captions: a tower for each; the views are one of the image, and one of its captions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.data.groups import caption_ids, merged_ids
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.config import ViewsConfig
from nearfar.modalities.image.automatic import look_at
from nearfar.modalities.image.backbones import OWN
from nearfar.modalities.image.data.decode import SUFFIXES
from nearfar.modalities.image.modality import ImageModality
from nearfar.modalities.image_text.automatic import choose, choose_for_towers
from nearfar.modalities.image_text.captioned import CaptionedImages
from nearfar.modalities.picture_grid import rows_to_show
from nearfar.modalities.text.modality import (
    TokenizingModality,
    cut_note,
    make_text_encoder,
)
from nearfar.modalities.text.start import with_absolute_folder, with_start
from nearfar.modalities.text.tokenizer import FILE
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.shard import Shard
from nearfar.nn.towers import TwoTowers
from nearfar.weights.huggingface import TRANSFORMERS

_CHAINED = 0.05  # fraction of all images that equal captions may join
_CAPTION = 1  # number of the view that is a caption


class ImageTextModality(TokenizingModality, ImageModality):
    """Images whose captions are their other view."""

    name = "image-text"
    noun = "captioned images"
    queries = ("image", "text")
    protocols = ("knn", "linear", "zero_shot", "captions")
    captions = None  # read if there are some
    reads_texts = True

    @classmethod
    def automatic(cls, request: Request) -> Automatic:
        if cls.defaults(request.data).get("backbone") or (facts := look_at(request.data)) is None:
            return Automatic()
        weights = request.given.get("weights"), request.given.get("text", {}).get("weights")
        if all(weights):
            return choose_for_towers(request, facts)
        return Automatic() if request.starts_from_weights else choose(request, facts)

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.recipes = self.recipes[:1]

    @classmethod
    def defaults(cls, data: str) -> dict[str, Any]:
        if data.partition(":")[0] != "glyphs":
            return {"optimizer": {"name": "adamw"}}
        return {
            "backbone": "strokes",
            "batch_size": 64,
            "optimizer": {"name": "adamw", "lr": 4e-3},
            "text": {"encoder": "text-micro", "vocab_size": 512, "max_length": 24, "embed_dim": 128},
        }

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
        images = super().open(spec, split)
        return images if images.captions is None else CaptionedImages(images, self.tokenize)

    def for_training(self, data: Dataset) -> Dataset:
        if data.captions is None:
            raise ValueError(
                f"{self.config.data.path} has no captions, which {self.config.method} learns from; expected a table "
                "with the columns path and caption, captions of COCO or Flickr, shards, or glyphs"
            )
        return data

    def open_to_embed(self, spec: str, split: str | None = None) -> Dataset:
        """The images alone: captions are not needed."""
        images = ImageModality(replace(self.config, views=ViewsConfig()))  # those of pairs are none of images alone
        return images.reading(self.config.data).open_to_embed(spec, split)

    def fit(self, data: Dataset) -> TrainConfig:
        """Learn a tokenizer from the captions, unless one is given."""
        assert isinstance(data, CaptionedImages)
        self.learn_tokenizer(data.all_texts)
        return self.config

    @property
    def publishes_images(self) -> bool:
        """`pretrained` is for each tower that has published weights, and for the images if none has."""
        texts_alone = self.config.text.encoder.startswith(TRANSFORMERS) and self.config.backbone in OWN
        return super().publishes_images and not texts_alone

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        texts = make_text_encoder(self.config, self.config.text.encoder, untrained=untrained, dropout=0.0)
        return TwoTowers(
            super().encoder(untrained=untrained),
            texts,
            embed_dim=self.config.text.embed_dim,
            second_hidden=self.config.text.projection_width,
        )

    def from_array(self, samples: NDArray[Any] | Tensor, kind: str | None = None) -> tuple[Any, bool]:
        return (samples, False) if kind == "text" else super().from_array(samples, kind)  # the first: token ids (B, L)

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        if source.tower_features is not None:
            images = [source.tower_features[index.cpu()].to(samples.device)]
        else:
            images = super().views(samples, source, index, seed=seed, step=step, shard=shard)
        return [*images, self._captions(samples, source, index, seed, step, shard)]

    def views_of_rows(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> Callable[[slice], list[Tensor]]:
        if source.tower_features is not None:
            made = self.views(samples, source, index, seed=seed, step=step, shard=shard)
            return lambda rows: [view[rows] for view in made]
        images = super().views_of_rows(samples, source, index, seed=seed, step=step, shard=shard)
        tokens = self._captions(samples, source, index, seed, step, shard)
        return lambda rows: [*images(rows), tokens[rows]]

    def pair_of_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        images = self.make_views(samples, self.recipes, seed=seed, step=step)
        return [*images, self._captions(samples, source, index, seed, step)]

    def guide_items(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[tuple[str, Any]]:
        """The images, and the captions that are drawn for them in this step."""
        assert isinstance(source, CaptionedImages)
        numbers = source.draw_numbers(index.cpu(), seeded_generator(seed, step, _CAPTION), shard).tolist()
        texts = [source.captions[row][number] for row, number in zip(index.tolist(), numbers, strict=True)]
        return [("image", samples), ("text", texts)]

    def _captions(
        self, samples: Tensor, source: Dataset, index: Tensor, seed: int, step: int, shard: Shard | None = None
    ) -> Tensor:
        assert isinstance(source, CaptionedImages)
        return source.draw(index.cpu(), seeded_generator(seed, step, _CAPTION), shard).to(samples.device)

    def ids(self, source: Dataset) -> Tensor:
        """Equal for images of one group, and for images of which any captions say the same.

        Being equal holds along chains: "a red circle" and "a circle", "a circle" and "a blue one". Where these join a
        good part of all images, so that hardly a negative is left, images are equal if their captions are all the same.
        """
        assert isinstance(source, CaptionedImages)
        owner = torch.arange(len(source)).repeat_interleave(source.counts)  # (C,)
        first = source.counts.cumsum(0) - source.counts
        merged = merged_ids(super().ids(source)[owner], caption_ids(source.all_texts))[first]
        if int(merged.bincount().max()) <= _CHAINED * len(source):
            return merged
        return merged_ids(super().ids(source), caption_ids(["\n".join(sorted(said)) for said in source.captions]))

    # Single items: a text, or what images are read from

    def item_kind(self, item: Any) -> str:
        path = isinstance(item, str) and Path(item).suffix.lower() in SUFFIXES and Path(item).expanduser().is_file()
        return "text" if isinstance(item, str) and not path else "image"

    def batch(self, items: Sequence[Any] | NDArray[Any], kind: str | None = None) -> Tensor:
        return self.tokenize(list(items)) if kind == "text" else super().batch(items, kind)

    def run_encoder(self, network: nn.Module, x: Tensor, kind: str) -> Tensor:
        if kind == "text":
            h: Tensor = network.second(x)  # type: ignore[operator]
            return h
        return super().run_encoder(network, x, kind)

    def show(self, source: Dataset, folder: Path) -> str:
        assert self.tokenizer is not None and isinstance(source, CaptionedImages)
        file = folder / FILE
        rows = rows_to_show(len(source), self.config.seed)
        drawn = source.draw(rows, seeded_generator(self.config.seed, 0, _CAPTION))
        texts = [" ".join(text.split()) for text in self.tokenizer.decode(drawn)]
        (folder / "views.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        line = f"{super().show(source, folder)}; {self.tokenizer.vocab_size:,} tokens in {file}"
        return line + cut_note(source.tokens, self.config.text.max_length)
