"""Series: views in time and in amplitude, convolutional encoders, the series themselves as the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.data.python_data import first_sample
from nearfar.data.sources import built_in
from nearfar.data.table_kind import has_paths, has_series, has_texts, table_file
from nearfar.methods import choose_views
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.base import Modality
from nearfar.modalities.baseline import Baseline
from nearfar.modalities.own_network import own_network
from nearfar.modalities.picture_grid import rows_to_show
from nearfar.modalities.series.automatic import choose, look_at
from nearfar.modalities.series.config import SeriesConfig
from nearfar.modalities.series.data import (
    BUILT_IN,
    SeriesDataset,
    has_series_splits,
    is_series,
    looks_like_series,
    open_series,
)
from nearfar.modalities.series.plot import plot_views, series_pictures
from nearfar.modalities.series.views import SERIES_PRESETS, SeriesPreparation, jittered, local_view, make_series_views
from nearfar.nn.sequence import sequence_encoder
from nearfar.nn.shard import Shard
from nearfar.python_objects import is_object
from nearfar.weights.load import begin_from_file, stated_card
from nearfar.weights.names import parse_name


class SeriesModality(Modality):
    """Series of one or more channels, in one tensor (B, C, T) with NaN behind the end of a shorter one."""

    name = "series"
    noun = "series"
    queries = ("series",)
    protocols = ("knn", "linear", "dtw")
    baseline_name = "the series themselves"
    has_pictures = True
    takes_objects = frozenset({"encoder"})

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.preset = self.preset_of(SERIES_PRESETS)
        recipes = SERIES_PRESETS[self.preset]()
        self.local_views = config.views.local or 0
        local = [local_view(recipes[0])] * self.local_views if self.local_views else []
        self.recipes = choose_views(config.method, self.preset, recipes, local, count=config.views.count)

    @classmethod
    def owns_name(cls, data: str) -> bool:
        return looks_like_series(data)

    @classmethod
    def recognizes(cls, data: str) -> bool:
        if is_object(data):
            return is_series(first_sample(data))
        file = table_file(data)
        return file is not None and not has_paths(file) and not has_texts(file) and has_series(file)

    @classmethod
    def defaults(cls, data: str) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "backbone": "dilated-small",
            "batch_size": 64,
            "epochs": 50,
            "optimizer": {"name": "adamw", "lr": 4e-3},
        }
        if data.partition(":")[0] == "waves":
            settings |= {"epochs": 10, "options": {"temperature": 0.2}}
        return settings

    @classmethod
    def automatic(cls, request: Request) -> Automatic:
        if built_in(request.data, BUILT_IN) is not None or (facts := look_at(request)) is None:
            return Automatic()
        return choose(request, facts)

    @classmethod
    def complete(cls, given: Mapping[str, Any], merged: dict[str, Any]) -> None:
        """The weights of a run bring their backbone with them."""
        if not given.get("weights"):
            return
        start = parse_name(given["weights"]).absolute()
        merged["weights"] = str(start)
        if start.kind == "folder" and not given.get("backbone"):
            merged["backbone"] = str(stated_card(Path(start.name)).get("backbone"))

    def open(self, spec: str, split: str | None = None) -> Dataset:
        data = open_series(spec, self.config.data, split=split)
        if self.config.series.channels not in (None, data.channels):
            raise ValueError(f"{spec} has {data.channels} channels, expected {self.config.series.channels}")
        return data

    def own_splits(self, spec: str) -> tuple[str, str] | None:
        return ("train", "test") if has_series_splits(spec) else None

    def fit(self, data: Dataset) -> TrainConfig:
        """Count channels and steps and, if asked for, measure mean and deviation of each channel."""
        assert isinstance(data, SeriesDataset)
        series = replace(self.config.series, channels=data.channels, length=self.config.series.length or data.size)
        if series.normalize == "data" and series.mean is None:
            flat = data.values.double().transpose(0, 1).flatten(1)  # (C, N T)
            centered = flat - flat.nanmean(1, keepdim=True)
            deviation = centered.square().nanmean(1).sqrt()
            deviation = torch.where(deviation > 0, deviation, 1.0)  # of a constant channel
            series = replace(series, mean=flat.nanmean(1).tolist(), std=deviation.tolist())
        self.config = replace(self.config, series=series)
        return self.config

    @property
    def preparation(self) -> SeriesPreparation:
        """What series go through before the encoder."""
        return preparation_of(self.config.series)

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        config = self.config
        if config.pretrained:
            raise ValueError("there are no pretrained weights of series; leave --pretrained out, or give --weights")
        series = config.series
        if is_object(config.backbone):
            example = torch.zeros(2, series.channels or 1, series.length or 64, device="cpu")
            return own_network(config.backbone, example)
        network = sequence_encoder(config.backbone, channels=series.channels or 1, steps=series.length)
        if config.weights is not None and not untrained:
            begin_from_file(network, config.weights, config.backbone)
        return network

    def prepare(self, samples: Tensor) -> Tensor:
        return self.preparation(samples)

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        return make_series_views(self.prepare(samples), self.recipes, seed=seed, step=step, shard=shard)

    def pair_of_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        full = self.recipes[: len(self.recipes) - self.local_views]
        recipes = full[:2] if len(full) > 1 else SERIES_PRESETS["series"]()
        return make_series_views(self.prepare(samples), recipes, seed=seed, step=step)

    def vary(self, samples: Tensor, generator: torch.Generator, *, strong: bool = False) -> Tensor:
        return jittered(samples, generator)

    def baseline(self, train: Dataset, test: Dataset) -> Baseline:
        return SeriesValues(train.size)

    def read(self, item: Any, kind: str | None = None) -> Tensor:
        """(C, T) float32."""
        if isinstance(item, str | Path) or hasattr(item, "read"):
            raise TypeError("a series is given as an array or tensor (T,) or (C, T)")
        x = torch.as_tensor(item.copy() if isinstance(item, np.ndarray) else item, dtype=torch.float32)
        x = x[None] if x.ndim == 1 else x
        channels = self.config.series.channels or 1
        if x.ndim != 2 or len(x) != channels or not x.shape[1]:
            raise ValueError(f"a series has shape {tuple(x.shape)}, expected ({channels}, T)")
        return x

    def collate(self, samples: Sequence[Tensor]) -> Tensor:
        longest = max(x.shape[-1] for x in samples)
        pad = (nn.functional.pad(x, (0, longest - x.shape[-1]), value=torch.nan) for x in samples)
        return torch.stack(list(pad))

    def check_batch(self, samples: Tensor, kind: str) -> Tensor:
        channels = self.config.series.channels or 1
        if samples.ndim != 3 or samples.shape[1] != channels or 0 in samples.shape:
            raise ValueError(f"series have shape {tuple(samples.shape)}, expected (B, {channels}, T)")
        return samples.float()

    def thumbnails(self, samples: Tensor, side: int) -> NDArray[np.uint8]:
        return series_pictures(self.prepare(samples), side)

    def card(self) -> dict[str, Any]:
        return {"modality": self.name, "preprocessing": self.preparation.words}

    def show(self, source: Dataset, folder: Path) -> str:
        sample = self.prepare(source.fetch(rows_to_show(len(source), self.config.seed)))
        shown = plot_views(sample, self.recipes, folder / "views.png", seed=self.config.seed)
        return f"views: {self.preset}, shown in {shown}; choose others with --views"


class SeriesValues(Baseline):
    """Prepared series as they are, 0 behind their ends, cut or filled up to the steps of the training series."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, x: Tensor) -> Tensor:
        x = x[..., : self.steps].nan_to_num(0.0)
        return nn.functional.pad(x, (0, self.steps - x.shape[-1])).flatten(1)


def preparation_of(config: SeriesConfig) -> SeriesPreparation:
    """What series go through before the encoder."""
    if config.normalize == "series":
        return SeriesPreparation()
    return SeriesPreparation(tuple(config.mean or (0.0,)), tuple(config.std or (1.0,)))
