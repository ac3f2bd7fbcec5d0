"""Sounds: recipes of views, log-mels or raw waves, encoders by name, and the preparation without chance."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.config import DataConfig, TrainConfig, nearest
from nearfar.data.dataset import Dataset
from nearfar.data.groups import with_groups
from nearfar.methods import check_views, known_method
from nearfar.modalities.image.data.opening import has_splits
from nearfar.modalities.image.views.grid import ROWS, sound_grid, spectrum_pictures
from nearfar.modalities.sound.backbones import AUDIO, audio_encoder
from nearfar.modalities.sound.data import SoundDataset, open_sounds
from nearfar.modalities.sound.logmel import LogMel
from nearfar.modalities.sound.views import (
    SOUND_PRESETS,
    SoundPreparation,
    SoundView,
    jittered,
    make_sound_views,
    of_waves,
)
from nearfar.nn.part import Part
from nearfar.nn.sequence import PRESETS as SEQUENCE
from nearfar.nn.sequence import sequence_encoder

_MEASURED = 1000  # sounds, evenly spaced, whose log-mels tell mean and deviation


class Sounds:
    """Sounds of any length, from which each view cuts its own.

    Attributes:
        mel: how waves become spectrograms.
        wave: the encoder hears the wave itself.
        mean, std: of the log-mels; measured on the first data that are opened.
    """

    protocols: tuple[str, ...] = ("knn", "linear")
    raw_is = "log-mels over time"
    varied = staticmethod(jittered)

    def __init__(self, config: TrainConfig) -> None:
        self.config, sound = config, config.sound
        self.preset = config.views or known_method(config.method).views_of("sound")
        if self.preset not in SOUND_PRESETS:
            raise ValueError(f"there are no views {self.preset!r} of sounds{nearest(self.preset, set(SOUND_PRESETS))}")
        self.wave = config.backbone in SEQUENCE
        self.level = self.wave and sound.normalize == "sound"
        self.values = max(1, round(sound.seconds * sound.rate))
        self.mel = LogMel(
            sound.rate,
            window=max(1, round(sound.window * sound.rate)),
            hop=max(1, round(sound.hop * sound.rate)),
            mels=sound.mels,
            low=sound.low,
            high=sound.rate * 7800 / 16_000 if sound.high is None else sound.high,
            centred=sound.normalize == "sound",
        )
        self.mean, self.std, self._known = 0.0, 1.0, False
        check_views(config.method, self.preset, self.recipes)

    def fed(self, mean: float, std: float) -> "Sounds":
        """With mean and deviation as a card states them."""
        self.mean, self.std, self._known = mean, std, True
        return self

    def reading(self, sources: DataConfig) -> "Sounds":
        """The same, but other data, or the same data by other rules."""
        return Sounds(replace(self.config, sources=sources)).fed(self.mean, self.std)

    @property
    def recipes(self) -> tuple[SoundView, ...]:
        """One for each view."""
        recipes = SOUND_PRESETS[self.preset](self.values, self.mel, **self._scale())
        return tuple(of_waves(recipe, level=self.level) for recipe in recipes) if self.wave else recipes

    @property
    def preparation(self) -> SoundPreparation:
        """What a sound goes through outside of training."""
        whole = self.wave or self.config.backbone in AUDIO  # an image backbone cannot tell where a sound ends
        least = self.mel.window if self.recipes[0].ends else self.values  # as in the views: no silence around
        mel = None if self.wave else self.mel
        return SoundPreparation(least, mel, level=self.level, whole=whole, **self._scale())

    def _scale(self) -> dict[str, float]:
        """Mean and deviation that are left to normalise by."""
        return {"mean": 0.0, "std": 1.0} if self.mel.centred else {"mean": self.mean, "std": self.std}

    @property
    def raw(self) -> SoundPreparation:
        """Spectrograms of the sounds as they are, without the silence around them."""
        return SoundPreparation(self.mel.window, replace(self.mel, centred=False), self.mean, self.std)

    def open(
        self, spec: str, *, split: str | None = None, groups: str | None = None, classes: list[str] | None = None
    ) -> Dataset:
        sources, sound = self.config.sources, self.config.sound
        found = open_sounds(
            spec,
            rate=sound.rate,
            longest=sound.longest,
            split=split if split and (has_splits(spec) or "=" in split or (Path(spec) / split).is_dir()) else None,
            labels=sources.labels,
            classes=classes,
            pattern=sources.pattern,
            path_column=sources.path_column,
            label_column=sources.label_column,
            group_column=sources.group_column,
            strict=sources.strict,
        )
        if not self._known and not self.wave:
            self.fed(*measured(found, self.raw))
        return found if groups is None else with_groups(found, groups)

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        config = self.config
        if self.wave:
            return sequence_encoder(config.backbone, channels=1)
        return audio_encoder(
            config.backbone,
            mels=config.sound.mels,
            pretrained=config.pretrained and not untrained,
            weights=None if untrained else config.weights,
        )

    def options(self) -> dict[str, Any]:
        return {}

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, part: Part | None = None
    ) -> list[Tensor]:
        return make_sound_views(samples, self.recipes, seed=seed, step=step, part=part)

    def two_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        recipes = self.recipes
        return make_sound_views(samples, recipes[:2] if len(recipes) > 1 else recipes * 2, seed=seed, step=step)

    def ids(self, source: Dataset) -> Tensor:
        return source.groups if source.groups is not None else torch.arange(len(source))

    def baseline(self, train: Dataset, test: Dataset) -> Callable[[Tensor], Tensor]:
        return OverTime()

    def card(self) -> dict[str, Any]:
        return {"modality": "sound", "mean": self.mean, "std": self.std, "preprocessing": self.preparation.words()}

    def pictures(self, samples: Tensor, side: int) -> NDArray[np.uint8]:
        return np.stack([np.asarray(picture) for picture in spectrum_pictures(self.raw(samples)[:, 0], side)])

    def show(self, source: Dataset, folder: Path) -> str:
        assert isinstance(source, SoundDataset)
        sample = source.fetch(torch.arange(min(ROWS, len(source))))
        shown = sound_grid(sample, self.recipes, folder / "views.png", mel=self.mel, seed=self.config.seed)
        line = f"views: {self.preset}, shown in {shown}; --views chooses others"
        if source.clipped:
            path = folder / "clipped.txt"
            path.write_text("".join(f"{name}\n" for name in source.clipped), encoding="utf-8")
            line += f"\n{len(source.clipped)} sounds are cut off at the top, recorded too loud, and are kept: {path}"
        return line


class OverTime:
    """What log-mels know before anything is learned: mean and deviation of each band over time."""

    stacked = 4  # frames of the spectrogram in one of `frames`

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 1, mels, T), NaN behind the end, to (B, 2 mels)."""
        return over_time(x)

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1, mels, T) to (B, T // 4, 4 mels), four frames side by side, and (B, T // 4): False behind the end."""
        x = x[:, 0, :, : x.shape[-1] // self.stacked * self.stacked].transpose(1, 2)  # (B, T, mels)
        x = x.reshape(len(x), -1, self.stacked * x.shape[2])
        missing = x.isnan().any(2)
        return x.masked_fill(missing[..., None], 0.0), ~missing


def over_time(x: Tensor) -> Tensor:
    """(B, 1, mels, T) log-mels, NaN behind the end, to (B, 2 mels): mean and deviation of each band over time."""
    there = ~x[:, 0].isnan()  # (B, mels, T)
    count = there.sum(2)
    values = torch.nan_to_num(x[:, 0], nan=0.0)
    mean = values.sum(2) / count
    deviation = (((values - mean[..., None]).square() * there).sum(2) / count).sqrt()
    return torch.cat([mean, deviation], 1)


def measured(sounds: SoundDataset, prepare: SoundPreparation) -> tuple[float, float]:
    """Mean and deviation of the log-mels of up to 1,000 sounds."""
    count, total, squares = 0, 0.0, 0.0
    prepare = replace(prepare, mean=0.0, std=1.0)
    for part in torch.linspace(0, len(sounds) - 1, min(_MEASURED, len(sounds))).long().split(64):
        x = prepare(sounds.fetch(part)).double()
        x = x[~x.isnan()]
        count, total, squares = count + x.numel(), total + float(x.sum()), squares + float(x.square().sum())
    mean = total / count
    return mean, max((squares / count - mean**2) ** 0.5, 1e-3)
