"""Images: opened from anywhere, viewed by recipes, encoded by backbones of any library."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.data.dataset import Dataset
from nearfar.data.python_data import first_sample
from nearfar.data.sources import folder_splits
from nearfar.methods import choose_views
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.baseline import Baseline
from nearfar.modalities.config import VIEW_FACTORS
from nearfar.modalities.image.automatic import PictureFacts, choose, look_at
from nearfar.modalities.image.backbones import backbone, check_size_of_input, stated_stem
from nearfar.modalities.image.color_histogram import ColorHistogram
from nearfar.modalities.image.data import opening
from nearfar.modalities.image.data.decode import SUFFIXES, opened
from nearfar.modalities.image.data.hugging_face import table_folder_splits
from nearfar.modalities.image.data.opening import are_pictures, find_images, is_files, is_glyphs, open_images
from nearfar.modalities.image.data.python_images import is_picture, typical_side
from nearfar.modalities.image.items import ImageItems
from nearfar.modalities.image.published import (
    backbone_of,
    check_reads_images,
    published_preparation,
    unknown_network,
)
from nearfar.modalities.image.views.custom_views import CustomViews, as_recipes
from nearfar.modalities.image.views.factors import with_factors
from nearfar.modalities.image.views.grid import view_grid
from nearfar.modalities.image.views.prepare import Preparation, check_preparation
from nearfar.modalities.image.views.presets import (
    PRESETS,
    crops,
    draw_views,
    local_view,
    make_views,
    simclr,
    split_local,
)
from nearfar.modalities.image.views.view import ImageView, apply_views
from nearfar.modalities.own_network import own_network
from nearfar.modalities.picture_grid import rows_to_show
from nearfar.modalities.splits import table_splits
from nearfar.nn.shard import Shard
from nearfar.python_objects import find_object, is_object, registered
from nearfar.weights.huggingface import KEPT_IMAGES, keep_config, kept_backbone
from nearfar.weights.load import model_folder_hint
from nearfar.weights.names import parse_name

_MEASURED = 32  # images, evenly spaced, whose size on disk is looked at
CROP_AND_FLIP = {"crop_scale": (0.25, 1.0), "jitter": 0.0, "grayscale": 0.0, "blur": 0.0}


class ImageModality(ImageItems):
    """Pictures from which each view cuts its own.

    Attributes:
        recipes: one for each view.
        preparation: what an image goes through outside of training.
    """

    name = "image"
    noun = "images"
    queries: ClassVar[tuple[str, ...]] = ("image",)
    baseline_name = "raw pixels"
    has_pictures = True
    view_factors = VIEW_FACTORS
    walks_folders = True
    suffixes = SUFFIXES
    views_in_rows = True
    takes_objects = frozenset({"encoder", "views"})
    captions: bool | None = False  # not read: an image without one is as good as any

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        asked, captions = config.views, self.captions is None
        self.view_size = asked.size or config.image_size
        self.own_views: CustomViews | None = None  # those of the user
        if is_object(asked.preset):
            self.preset, self.own_views = str(asked.preset), registered(str(asked.preset))
            full, local = split_local(as_recipes(self.own_views, self.view_size))
        else:
            self.preset = self.preset_of(PRESETS)
            full, local = split_local(PRESETS[self.preset](self.view_size))
        for name, value in (("local", asked.local), ("scale", asked.scale)):
            if value and not crops(full[0]):
                known = ", ".join(name for name, make in PRESETS.items() if crops(make(self.view_size)[0]))
                fault = f"--views.{name} is {value}, and the preset {self.preset!r} does not crop"
                raise ValueError(f"{fault}; set --views to one that does: {known}")
        full = [with_factors(view, asked) for view in full]
        local = [with_factors(view, replace(asked, scale=None)) for view in local]
        if asked.local is not None:
            local = [local_view(full[0])] * asked.local if asked.local else []
        chosen = choose_views(config.method, self.preset, full, local, count=asked.count, captions=captions)
        self.start = None if config.weights is None else parse_name(config.weights)
        scale = published_preparation(config.backbone, self.start) if self._has_published_scale() else {}
        scale.pop("image_size", None)
        self.recipes: tuple[ImageView, ...] = tuple(replace(view, **scale) for view in chosen)
        self.local_views = len(local)
        self.preparation = replace(Preparation.of(self.recipes[0]), size=config.image_size)
        self.published_stem: bool | None = None  # None: as the weights have it, else by the size of the images
        self._buffers: list[Tensor] = []

    def _has_published_scale(self) -> bool:
        """Whether the start says how its colors are scaled; a file does not, and ImageNet's scale is the usual one."""
        if self.own_views is not None and self.own_views.normalized:
            return False  # they have their own
        return self.publishes_images or (self.start is not None and self.start.kind != "file" and not self.start.file)

    @classmethod
    def defaults(cls, data: str) -> dict[str, Any]:
        if data.partition(":")[0] != "glyphs":
            return {}
        return {
            "views": "shapes",
            "backbone": "strokes",
            "epochs": 3,
            "batch_size": 64,
            "optimizer": {"name": "muon"},
            "options": {"temperature": 0.2, "layers": 1, "dim": 256},
        }

    @classmethod
    def recognizes(cls, data: str) -> bool:
        return is_picture(first_sample(data)) if is_object(data) else are_pictures(data)

    @classmethod
    def automatic(cls, request: Request) -> Automatic:
        looked = PictureFacts(*typical_side(request.data)) if is_object(request.data) else look_at(request.data)
        return Automatic() if cls.defaults(request.data) or looked is None else choose(request, looked)

    def open(self, spec: str, split: str | None = None) -> Dataset:
        read = replace(self.config.data, groups_file=None)
        return open_images(spec, read, split=split, image_size=self.config.image_size, captions=self.captions)

    def read_config_of_others(self, spec: str | None = None) -> DataConfig:
        """At the size of single images, so that `encode` and every data set see the same pixels."""
        return DataConfig() if spec is not None and is_glyphs(spec) else DataConfig(stored_size=self.decode_side)

    def open_to_embed(self, spec: str, split: str | None = None) -> Dataset:
        """Files are decoded when they are needed, and stored nowhere."""
        return self.reading(replace(self.config.data, stream=is_files(spec))).open(spec, split)

    def own_splits(self, spec: str) -> tuple[str, str] | None:
        if Path(spec).expanduser().is_dir():
            return table_folder_splits(Path(spec).expanduser()) or folder_splits(spec)
        return ("train", "test") if opening.has_own_splits(spec) else table_splits(spec)

    @classmethod
    def complete(cls, given: Mapping[str, Any], merged: dict[str, Any]) -> None:
        """Weights bring their backbone with them, unless one is named."""
        if not merged.get("weights"):
            return
        start = parse_name(merged["weights"]).absolute()
        check_reads_images(start)
        merged["weights"] = str(start)
        if given.get("backbone"):
            return
        if (found := backbone_of(start)) is not None:
            merged["backbone"] = found
        elif start.kind == "file":
            way = model_folder_hint(Path(start.name)) or "name it by --backbone"
            raise ValueError(f"{unknown_network(Path(start.name))}; {way}")

    @property
    def publishes_images(self) -> bool:
        """Whether the images' encoder begins with the weights that its library publishes."""
        return self.config.pretrained

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        config, size = self.config, self.config.image_size
        if is_object(config.backbone):
            return own_network(config.backbone, torch.zeros(2, 3, size, size, device="cpu"))
        network = backbone(
            config.backbone,
            size=config.image_size,
            pretrained=self.publishes_images and not untrained,
            weights=None if untrained else config.weights,
            published_stem=True if self.publishes_images else self.published_stem,
            any_size=self.local_views > 0 or self.view_size != size,
        )
        for view in {self.recipes[0].size, self.recipes[-1].size} - {size}:
            check_size_of_input(network, view, self.config.backbone)
        return network

    def prepare(self, samples: Tensor) -> Tensor:
        return self.preparation(samples)

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        if is_object(self.preset):
            return self.make_views(samples, self.recipes, seed=seed, step=step, shard=shard)
        return make_views(samples, self.recipes, seed=seed, step=step, out=self._buffers_for(samples), shard=shard)

    def make_views(
        self, samples: Tensor, recipes: Sequence[ImageView], *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        """As many views as recipes, of the user's own code if there is some."""
        if not is_object(self.preset):
            return make_views(samples, recipes, seed=seed, step=step, shard=shard)
        own: CustomViews = self.own_views or find_object(self.preset, "views")
        made = own.make(samples, recipes, seed=seed, step=step, shard=shard)
        if wrong := {tuple(view.shape[2:]) for view in made} - {(size := self.view_size, size)}:
            raise ValueError(f"the views {own!r} are of {wrong.pop()} pixels, expected image_size, {size}: set either")
        return made

    def views_of_rows(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> Callable[[slice], list[Tensor]]:
        if is_object(self.preset):
            return super().views_of_rows(samples, source, index, seed=seed, step=step, shard=shard)
        drawn = draw_views(samples, self.recipes, seed=seed, step=step, shard=shard)

        def some(rows: slice) -> list[Tensor]:
            images = samples[rows]
            made = self._buffers_for(images)
            apply_views(images, self.recipes, [each.rows(rows.start, rows.stop) for each in drawn], made)
            return made

        return some

    def pair_of_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        full = self.recipes[: len(self.recipes) - self.local_views]
        recipes = full[:2] if len(full) > 1 else full * 2
        return self.make_views(samples, recipes, seed=seed, step=step)

    def vary(self, samples: Tensor, generator: torch.Generator, *, strong: bool = False) -> Tensor:
        """(B, 3, S, S) uint8 to uint8: crops and flips, or SimCLR's views if strong."""
        size = samples.shape[-1]
        view = simclr(size)[0] if strong else ImageView(size=size, **CROP_AND_FLIP)  # type: ignore[arg-type]
        values = replace(view, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))(samples, generator)  # in [0, 1]
        return values.mul_(255).round_().clamp_(0, 255).to(torch.uint8)

    def _buffers_for(self, images: Tensor) -> list[Tensor]:
        """Where to write the views of these images: over those of the step before."""
        if not self._buffers or len(self._buffers[0]) < len(images) or self._buffers[0].device != images.device:
            layout = torch.channels_last if self.config.channels_last else torch.contiguous_format
            shapes = [(len(images), 3, view.size, view.size) for view in self.recipes]
            self._buffers = [torch.empty(s, device=images.device, memory_format=layout) for s in shapes]
        return [buffer[: len(images)] for buffer in self._buffers]

    def forget_buffers(self) -> None:
        self._buffers = []

    @property
    def raw_prepare(self) -> Preparation | None:
        return None if self.preparation.plain else Preparation(self.preparation.size)

    def further_baselines(self) -> dict[str, Baseline]:
        return {"colour histogram": ColorHistogram()}

    def native_side(self) -> int | None:
        """Median of the shorter sides of some training images as they are on disk; None if they are no files."""
        try:
            source = find_images(self.config.data.path, replace(self.config.data, groups_file=None), split=None)
            if not source.paths:
                return None
            step = max(1, len(source.paths) // _MEASURED)
            sides = []
            for path in source.paths[::step][:_MEASURED]:
                with suppress(Exception), opened(path) as image:  # Pillow raises errors of every kind
                    sides.append(min(image.size))
            return int(median(sides)) if sides else None
        except (OSError, ValueError):
            return None

    def method_options(self) -> dict[str, Any]:
        """What pictures are normalized by, for methods that look at colors."""
        scale = {"mean": self.preparation.mean, "std": self.preparation.std}
        return {**super().method_options(), **scale}

    def prepare_unresized(self, samples: Tensor) -> Tensor:
        return self.preparation.whole(samples)

    # Files

    def save(self, folder: Path) -> None:
        keep_config(self.config.backbone, folder, KEPT_IMAGES)

    def card(self) -> dict[str, Any]:
        given, stem = self.config.weights, self.published_stem
        if given is not None and stem is None:  # the file decides: look at the network once
            self.published_stem = stem = getattr(self.encoder(), "published_stem", None)
        known = {} if stem is None else {"published_stem": stem}
        return {**self.preparation.card(), "stored_size": self.config.data.stored_size, "modality": self.name, **known}

    @classmethod
    def load(cls, config: TrainConfig, card: Mapping[str, Any], folder: Path) -> Self:
        if (stored := card.get("stored_size")) is not None and config.data.stored_size is None:
            config = replace(config, data=replace(config.data, stored_size=stored))
        made = cls(replace(config, weights=None, pretrained=False))  # whose files may be gone
        kept = kept_backbone(folder, KEPT_IMAGES)
        made.config = config if kept is None else replace(config, backbone=kept)
        made.preparation = Preparation.of_card(card)
        scale = {"mean": made.preparation.mean, "std": made.preparation.std}
        made.recipes = tuple(replace(view, **scale) for view in made.recipes)  # type: ignore[arg-type]
        made.published_stem = stated_stem(card)
        return made

    @classmethod
    def check_card(cls, card: Mapping[str, Any], path: Path) -> None:
        check_preparation(card, path)

    def show(self, source: Dataset, folder: Path) -> str:
        self.save(folder)
        sample = source.fetch(rows_to_show(len(source), self.config.seed))
        made = self.make_views(sample, self.recipes, seed=self.config.seed, step=0)
        shown = view_grid(sample, self.recipes, folder / "views.png", made=made)
        options = ((name, getattr(self.config.views, name)) for name in VIEW_FACTORS)
        named = ", ".join([self.preset, *(f"{name} {option}" for name, option in options if option is not None)])
        return f"views: {named}, shown in {shown}; choose others with --views"
