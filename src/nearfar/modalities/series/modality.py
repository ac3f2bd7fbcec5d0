"""Series: views in time and in height, convolutions, and beside them the series themselves by Euclid and by DTW."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.config import DataConfig, SeriesConfig, TrainConfig, nearest
from nearfar.data.dataset import Dataset
from nearfar.methods import check_views, known_method
from nearfar.modalities.series.data import SeriesDataset, has_series_splits, open_series
from nearfar.modalities.series.plot import ROWS, plot_views, series_pictures
from nearfar.modalities.series.views import SERIES_PRESETS, SeriesPreparation, jittered, make_series_views
from nearfar.nn.part import Part
from nearfar.nn.sequence import sequence_encoder


class Series:
    """Series of one or more channels, in one tensor (B, C, T) with NaN behind the end of a shorter one."""

    raw = None
    protocols: tuple[str, ...] = ("knn", "linear", "dtw")
    raw_is = "the series themselves"
    varied = staticmethod(jittered)

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.preset = config, config.views or known_method(config.method).views_of("series")
        if self.preset not in SERIES_PRESETS:
            raise ValueError(f"there are no views {self.preset!r} of series{nearest(self.preset, set(SERIES_PRESETS))}")
        self.recipes = SERIES_PRESETS[self.preset]()
        check_views(config.method, self.preset, self.recipes)
        self.preparation = preparation_of(config.series)

    def reading(self, sources: DataConfig) -> "Series":
        """The same, but other data, or the same data by other rules."""
        return Series(replace(self.config, sources=sources))

    @staticmethod
    def settled(config: TrainConfig) -> TrainConfig:
        """The configuration with what the training data alone can say: their channels and, if asked for, statistics."""
        data = Series(config).open(config.data)
        assert isinstance(data, SeriesDataset)
        series = config.series
        series = replace(series, channels=data.channels)
        if series.normalize == "data" and series.mean is None:
            flat = data.values.double().transpose(0, 1).flatten(1)  # (C, N T)
            centred = flat - flat.nanmean(1, keepdim=True)
            deviation = centred.square().nanmean(1).sqrt()
            deviation = torch.where(deviation > 0, deviation, 1.0)  # of a constant channel
            series = replace(series, mean=flat.nanmean(1).tolist(), std=deviation.tolist())
        return replace(config, series=series)

    def open(
        self, spec: str, *, split: str | None = None, groups: str | None = None, classes: list[str] | None = None
    ) -> Dataset:
        if groups is not None:
            raise ValueError(
                "sources.groups is for files of images; a table of series names groups in a column 'group'"
            )
        sources = self.config.sources
        data = open_series(
            spec,
            split=split if has_series_splits(spec) else None,
            classes=classes,
            label_column=sources.label_column,
            group_column=sources.group_column,
            strict=sources.strict,
        )
        if sources.labels is False:
            data.labels, data.classes = None, None
        if self.config.series.channels not in (None, data.channels):
            raise ValueError(f"{spec} has {data.channels} channels, expected {self.config.series.channels}")
        return data

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        if self.config.pretrained or self.config.weights is not None:
            raise ValueError("there are no pretrained weights of series; leave --pretrained and --weights out")
        return sequence_encoder(self.config.backbone, channels=self.config.series.channels or 1)

    def options(self) -> dict[str, Any]:
        return {}

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, part: Part | None = None
    ) -> list[Tensor]:
        return make_series_views(self.preparation(samples), self.recipes, seed=seed, step=step, part=part)

    def two_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        recipes = self.recipes[:2] if len(self.recipes) > 1 else SERIES_PRESETS["series"]()
        return make_series_views(self.preparation(samples), recipes, seed=seed, step=step)

    def ids(self, source: Dataset) -> Tensor:
        return source.groups if source.groups is not None else torch.arange(len(source))

    def baseline(self, train: Dataset, test: Dataset) -> Callable[[Tensor], Tensor]:
        return Values(train.size)

    def card(self) -> dict[str, Any]:
        return {"modality": "series", "preprocessing": self.preparation.words}

    def pictures(self, samples: Tensor, side: int) -> NDArray[np.uint8]:
        return series_pictures(self.preparation(samples), side)

    def show(self, source: Dataset, folder: Path) -> str:
        sample = self.preparation(source.fetch(torch.arange(min(ROWS, len(source)))))
        shown = plot_views(sample, self.recipes, folder / "views.png", seed=self.config.seed)
        return f"views: {self.preset}, shown in {shown}; --views chooses others"


class Values:
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
