"""Images: recipes of views, backbones by name, and the preparation without chance."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.config import TrainConfig, nearest
from nearfar.data.dataset import Dataset
from nearfar.methods import check_views, known_method
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.opening import has_splits, open_data
from nearfar.modalities.image.views.grid import ROWS, view_grid
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.modalities.image.views.presets import PRESETS, draw_views, make_views
from nearfar.modalities.image.views.view import ImageView, apply_views
from nearfar.nn.part import Part
from nearfar.report.samples import image_pictures


class Images:
    """Pictures from which each view cuts its own.

    Attributes:
        recipes: one for each view.
        preparation: what an image goes through outside of training.
    """

    protocols: tuple[str, ...] = ("knn", "linear")
    captions = False  # of no use here, so that an image without one is as good as any

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.preset = config, config.views or known_method(config.method).views_of(config.kind)
        if self.preset not in PRESETS:
            raise ValueError(f"there are no views {self.preset!r}{nearest(self.preset, set(PRESETS))}")
        self.recipes: tuple[ImageView, ...] = PRESETS[self.preset](config.image_size)
        check_views(config.method, self.preset, self.recipes, captions=self.captions)
        self.preparation = Preparation.of(self.recipes[0])
        self._room: list[Tensor] = []

    def open(self, spec: str, *, split: str | None = None, groups: str | None = None) -> Dataset:
        sources = self.config.sources
        return open_data(
            spec,
            size=sources.size,
            image_size=self.config.image_size,
            split=split if has_splits(spec) or "=" in (split or "") else None,
            labels=sources.labels,
            path_column=sources.path_column,
            label_column=sources.label_column,
            group_column=sources.group_column,
            caption_column=sources.caption_column,
            captions=self.captions,
            groups=groups,
            stream=sources.stream,
            strict=sources.strict,
        )

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        return backbone(
            self.config.backbone,
            size=self.config.image_size,
            pretrained=self.config.pretrained and not untrained,
            weights=None if untrained else self.config.weights,
            published_stem=self.config.pretrained,
        )

    def options(self) -> dict[str, Any]:
        return {}

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, part: Part | None = None
    ) -> list[Tensor]:
        return make_views(samples, self.recipes, seed=seed, step=step, out=self._room_for(samples), part=part)

    def views_in_parts(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, part: Part | None = None
    ) -> Callable[[slice], list[Tensor]]:
        """Rows of the batch to what `views` has in these rows, until the next are asked for, which overwrite them."""
        drawn = draw_views(samples, self.recipes, seed=seed, step=step, part=part)

        def some(rows: slice) -> list[Tensor]:
            images = samples[rows]
            made = self._room_for(images)
            apply_views(images, self.recipes, [each.rows(rows.start, rows.stop) for each in drawn], made)
            return made

        return some

    def two_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        recipes = self.recipes[:2] if len(self.recipes) > 1 else self.recipes * 2
        return make_views(samples, recipes, seed=seed, step=step)

    def _room_for(self, images: Tensor) -> list[Tensor]:
        """Where to write the views of these images: over those of the step before, which nothing needs any more."""
        if not self._room or len(self._room[0]) < len(images) or self._room[0].device != images.device:
            layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
            shapes = [(len(images), 3, view.size, view.size) for view in self.recipes]
            self._room = [torch.empty(s, device=images.device, memory_format=layout) for s in shapes]
        return [room[: len(images)] for room in self._room]

    @property
    def raw(self) -> Preparation | None:
        return None if self.preparation.plain else Preparation(self.config.image_size)

    def ids(self, source: Dataset) -> Tensor:
        return source.groups if source.groups is not None else torch.arange(len(source))

    def baseline(self, train: Dataset, test: Dataset) -> Callable[[Tensor], Tensor] | None:
        return None

    def card(self) -> dict[str, Any]:
        return self.preparation.card()

    def pictures(self, samples: Tensor, side: int) -> NDArray[np.uint8]:
        return image_pictures(samples, side)

    def show(self, source: Dataset, folder: Path) -> str:
        sample = source.fetch(torch.arange(min(ROWS, len(source))))
        shown = view_grid(sample, self.recipes, folder / "views.png", seed=self.config.seed)
        return f"views: {self.preset}, shown in {shown}; --views chooses others"
