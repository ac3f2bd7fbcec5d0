"""Images and their captions: a tower for each; the views are one of the image, and one of its captions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.captioned import CaptionedModality
from nearfar.modalities.config import ViewsConfig
from nearfar.modalities.image.automatic import look_at
from nearfar.modalities.image.backbones import OWN
from nearfar.modalities.image.modality import ImageModality
from nearfar.modalities.image_text.automatic import choose, choose_for_towers
from nearfar.nn.shard import Shard
from nearfar.weights.huggingface import TRANSFORMERS


class ImageTextModality(CaptionedModality, ImageModality):
    """Images whose captions are their other view."""

    name = "image-text"
    noun = "captioned images"
    queries = ("image", "text")
    protocols = ("knn", "linear", "zero_shot", "captions")
    how_captioned = "a table with the columns path and caption, captions of COCO or Flickr, shards, or glyphs"

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

    def open_to_embed(self, spec: str, split: str | None = None) -> Dataset:
        """The images alone: captions are not needed."""
        images = ImageModality(replace(self.config, views=ViewsConfig()))  # those of pairs are none of images alone
        return images.reading(self.config.data).open_to_embed(spec, split)

    @property
    def publishes_images(self) -> bool:
        """`pretrained` is for each tower that has published weights, and for the images if none has."""
        texts_alone = self.config.text.encoder.startswith(TRANSFORMERS) and self.config.backbone in OWN
        return super().publishes_images and not texts_alone

    def views_of_rows(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> Callable[[slice], list[Tensor]]:
        if source.tower_features is not None:
            made = self.views(samples, source, index, seed=seed, step=step, shard=shard)
            return lambda rows: [view[rows] for view in made]
        images = super().views_of_rows(samples, source, index, seed=seed, step=step, shard=shard)
        tokens = self._captions(samples, source, index, seed, step, shard)
        return lambda rows: [*images(rows), tokens[rows]]
