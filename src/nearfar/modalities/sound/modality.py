"""Sounds: log-mels or raw waves, viewed by recipes, encoded by name."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.data.sources import built_in, folder_splits
from nearfar.messages import shown
from nearfar.methods import choose_views
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.base import Modality
from nearfar.modalities.baseline import Baseline
from nearfar.modalities.image.views.prepare import is_finite
from nearfar.modalities.picture_grid import rows_to_show
from nearfar.modalities.sound.automatic import choose, look_at
from nearfar.modalities.sound.backbones import AUDIO, STRETCHING, audio_encoder
from nearfar.modalities.sound.data import BUILT_IN, OVER, SoundDataset, are_sounds, open_sounds
from nearfar.modalities.sound.files import SUFFIXES, decode_sound, why
from nearfar.modalities.sound.grid import sound_grid, spectrum_pictures
from nearfar.modalities.sound.huggingface import HuggingFaceWaves
from nearfar.modalities.sound.logmel import LogMel, LogMelStatistics
from nearfar.modalities.sound.mfcc import MfccSequence
from nearfar.modalities.sound.presets import SOUND_PRESETS, local_view, of_waves
from nearfar.modalities.sound.start import start_settings
from nearfar.modalities.sound.views import SoundPreparation, SoundView, jittered, make_sound_views
from nearfar.modalities.sound.wave import Trim
from nearfar.modalities.splits import table_splits
from nearfar.nn.sequence import PRESETS as SEQUENCE
from nearfar.nn.sequence import sequence_encoder
from nearfar.nn.shard import Shard
from nearfar.weights.huggingface import KEPT, TRANSFORMERS, keep_config, kept_backbone
from nearfar.weights.load import begin_from_file
from nearfar.weights.names import parse_name

BLOCK = 0.01  # seconds, whose power tells where a sound begins and ends
_MEASURED = 1000  # sounds, evenly spaced, whose log-mels give mean and deviation


class SoundModality(Modality):
    """Sounds of any length, from which each view cuts its own.

    Attributes:
        mel: how waves become spectrograms.
        wave: the encoder takes the wave itself.
    """

    name = "sound"
    noun = "sounds"
    queries: ClassVar[tuple[str, ...]] = ("sound",)
    baseline_name = "log-mels over time"
    has_pictures = True
    walks_folders = True
    suffixes = SUFFIXES
    captions: bool | None = False  # not read: a sound without one is as good as any
    kept_config = KEPT  # folder of a run, for a backbone of transformers

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        sound = config.sound
        self.preset = self.preset_of(SOUND_PRESETS)
        self.wave = config.backbone in SEQUENCE or config.backbone.startswith(TRANSFORMERS)
        self.level = self.wave and sound.normalize == "sound"
        self.values = max(1, round(sound.crop_seconds * sound.sample_rate))
        self.mel = LogMel(
            sound.sample_rate,
            window=max(1, round(sound.window_seconds * sound.sample_rate)),
            hop=max(1, round(sound.hop_seconds * sound.sample_rate)),
            n_mels=sound.n_mels,
            f_min=sound.f_min,
            f_max=sound.sample_rate * 7800 / 16_000 if sound.f_max is None else sound.f_max,
            centred=sound.normalize == "sound",
            range_db=sound.range_db,
        )
        self.trim = None if sound.trim_db is None else Trim(sound.trim_db, max(1, round(BLOCK * sound.sample_rate)))
        self.local_views = config.views.local or 0
        _ = self.recipes  # refused before anything is read, if the method cannot use them

    @classmethod
    def owns_name(cls, data: str) -> bool:
        return data.partition(":")[0] in BUILT_IN

    @classmethod
    def recognizes(cls, data: str) -> bool:
        return are_sounds(data)

    @classmethod
    def defaults(cls, data: str) -> dict[str, Any]:
        settings: dict[str, Any] = {"backbone": "audio-tiny", "batch_size": 64, "optimizer": {"name": "adamw"}}
        if data.partition(":")[0] == "melodies":
            settings["sound"] = {"sample_rate": 8000, "crop_seconds": 1.0, "f_min": 100.0}
        return settings

    @classmethod
    def complete(cls, given: Mapping[str, Any], merged: dict[str, Any]) -> None:
        """Weights bring their backbone with them, and how sounds are read."""
        if not given.get("weights"):
            return
        start = parse_name(given["weights"]).absolute()
        backbone, sound = start_settings(start)
        merged["weights"] = str(start)
        if backbone is not None and not given.get("backbone"):
            merged["backbone"] = backbone
            merged["sound"] = {**dict(merged.get("sound") or {}), **sound, **dict(given.get("sound") or {})}

    @classmethod
    def automatic(cls, request: Request) -> Automatic:
        if built_in(request.data, BUILT_IN) is not None or (facts := look_at(request)) is None:
            return Automatic()
        return choose(request, facts)

    # Data

    def open(self, spec: str, split: str | None = None) -> Dataset:
        read, sound = replace(self.config.data, groups_file=None), self.config.sound
        return open_sounds(
            spec,
            read,
            sample_rate=sound.sample_rate,
            max_seconds=sound.max_seconds,
            split=split,
            captions=self.captions,
        )

    def own_splits(self, spec: str) -> tuple[str, str] | None:
        if Path(spec).expanduser().is_dir():
            return folder_splits(spec)
        return ("train", "test") if built_in(spec, BUILT_IN) is not None else table_splits(spec)

    def fit(self, data: Dataset) -> TrainConfig:
        """Measure mean and deviation of the log-mels."""
        if self.config.sound.mean is None and not self.wave:
            mean, std = log_mel_statistics(data, self.raw_prepare)
            self.config = replace(self.config, sound=replace(self.config.sound, mean=mean, std=std))
        return self.config

    # From sounds to the encoder

    @property
    def mean(self) -> float:
        """Of the log-mels; 0 before `fit`."""
        return self.config.sound.mean or 0.0

    @property
    def std(self) -> float:
        return self.config.sound.std or 1.0

    @property
    def recipes(self) -> tuple[SoundView, ...]:
        """One for each view."""
        made = SOUND_PRESETS[self.preset](self.values, self.mel, **self._scale())
        recipes: Sequence[SoundView] = [replace(recipe, trim=self.trim) for recipe in made]
        local = [local_view(recipes[0])] * self.local_views
        recipes = choose_views(
            self.config.method,
            self.preset,
            recipes,
            local,
            count=self.config.views.count,
            captions=self.captions is None,
        )
        return tuple(of_waves(recipe, level=self.level) for recipe in recipes) if self.wave else tuple(recipes)

    @property
    def preparation(self) -> SoundPreparation:
        """What a sound goes through outside of training."""
        whole = self.wave or self.config.backbone in AUDIO  # an image backbone cannot tell where a sound ends
        stretched = self.config.backbone in STRETCHING
        least = self.mel.window if stretched or self.recipes[0].ends else self.values  # as in the views: no silence
        mel = None if self.wave else self.mel
        return SoundPreparation(least, mel, level=self.level, whole=whole, trim=self.trim, **self._scale())

    def _scale(self) -> dict[str, float]:
        """Mean and deviation that are left to normalize by."""
        return {"mean": 0.0, "std": 1.0} if self.mel.centred else {"mean": self.mean, "std": self.std}

    @property
    def raw_prepare(self) -> SoundPreparation:
        """Spectrograms of the sounds as they are, without the silence around them."""
        mel = replace(self.mel, centred=False, range_db=None)
        return SoundPreparation(self.mel.window, mel, self.mean, self.std, trim=self.trim)

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        config, weights = self.config, None if untrained else self.config.weights
        if config.backbone.startswith(TRANSFORMERS):
            start = None if weights is None else parse_name(weights)
            source = config.backbone.removeprefix(TRANSFORMERS) if start is None else start.name
            return HuggingFaceWaves(source, pretrained=start is not None or (config.pretrained and not untrained))
        if self.wave:
            network = sequence_encoder(config.backbone, channels=1)
            if weights is not None:
                begin_from_file(network, weights, config.backbone)
            return network
        return audio_encoder(
            config.backbone,
            n_mels=config.sound.n_mels,
            frames=self.mel.frames(self.values),
            pretrained=config.pretrained and not untrained,
            weights=weights,
        )

    def prepare(self, samples: Tensor) -> Tensor:
        return self.preparation(samples)

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        return make_sound_views(samples, self.recipes, seed=seed, step=step, shard=shard)

    def guide_items(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[tuple[str, Any]]:
        raise ValueError(
            "a guide is not supported for sounds, since its sample rate may differ; leave out --options.guide"
        )

    def pair_of_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        full = self.recipes[: len(self.recipes) - self.local_views]
        return make_sound_views(samples, full[:2] if len(full) > 1 else full * 2, seed=seed, step=step)

    def vary(self, samples: Tensor, generator: torch.Generator, *, strong: bool = False) -> Tensor:
        return jittered(samples, generator)

    def baseline(self, train: Dataset, test: Dataset) -> Baseline:
        return LogMelStatistics()

    def further_baselines(self) -> dict[str, Baseline]:
        return {"MFCC": MfccSequence()}

    # Single sounds

    @property
    def sample_rate(self) -> int:
        """Values a second."""
        return self.config.sound.sample_rate

    @property
    def longest(self) -> int:
        """Values of a sound that are read, at most."""
        return round(self.config.sound.max_seconds * self.sample_rate)

    def seconds_per_frame(self, hop: int) -> float:
        return hop * (1 if self.wave else self.mel.hop) / self.sample_rate

    def read(self, item: Any, kind: str | None = None) -> Tensor:
        """(T,) int16 at the encoder's rate."""
        if isinstance(item, np.ndarray | Tensor):
            wave = torch.as_tensor(item.copy() if isinstance(item, np.ndarray) else item)
            if wave.ndim != 1 or not len(wave):
                raise ValueError(
                    f"a sound has shape {tuple(wave.shape)}, expected (T,) values at {self.sample_rate} Hz"
                )
            return as_int16(wave)
        if isinstance(item, str | Path):
            return self._decoded(Path(item).expanduser(), str(item))
        return self._decoded(item, "the sound")

    def read_upload(self, content: bytes, *, pixels: int, seconds: float) -> Tensor:
        return self._decoded(io.BytesIO(content), "it", seconds)

    def _decoded(self, file: Path | BinaryIO, what: str, seconds: float | None = None) -> Tensor:
        try:
            return torch.from_numpy(decode_sound(file, self.sample_rate, seconds=seconds).values[: self.longest])
        except ModuleNotFoundError:
            raise
        except Exception as error:  # soundfile raises errors of several kinds on broken files
            raise ValueError(f"{what} cannot be read as a sound: {why(error)}") from None

    def collate(self, samples: Sequence[Tensor]) -> Tensor:
        batch = torch.full((len(samples), max(map(len, samples))), OVER, dtype=torch.int16)
        for row, wave in zip(batch, samples, strict=True):
            row[: len(wave)] = wave
        return batch

    def check_batch(self, samples: Tensor, kind: str) -> Tensor:
        if samples.ndim != 2 or 0 in samples.shape:
            raise ValueError(
                f"sounds have shape {tuple(samples.shape)}, expected (B, T) values at {self.sample_rate} Hz"
            )
        return as_int16(samples)

    def thumbnails(self, samples: Tensor, side: int) -> NDArray[np.uint8]:
        spectra = replace(self.raw_prepare, trim=None)(samples)[:, 0]
        return np.stack([np.asarray(picture) for picture in spectrum_pictures(spectra, side)])

    def audio(self, sample: Tensor) -> tuple[NDArray[np.int16], int]:
        return np.asarray(sample[sample != OVER].numpy(), np.int16), self.sample_rate

    # Files

    def card(self) -> dict[str, Any]:
        words = self.preparation.words()
        return {"modality": self.name, "mean": self.mean, "std": self.std, "preprocessing": words}

    @classmethod
    def load(cls, config: TrainConfig, card: Mapping[str, Any], folder: Path) -> Self:
        backbone = kept_backbone(folder, cls.kept_config) or config.backbone
        sound = replace(config.sound, mean=float(card["mean"]), std=float(card["std"]))
        return cls(replace(config, backbone=backbone, sound=sound))

    def save(self, folder: Path) -> None:
        keep_config(self.config.backbone, folder, self.kept_config)

    @classmethod
    def check_card(cls, card: Mapping[str, Any], path: Path) -> None:
        mean, std = card.get("mean"), card.get("std")
        if not is_finite(mean) or not is_finite(std) or not isinstance(std, int | float) or std <= 0:
            seen = f"{shown(mean)} and {shown(std)}"
            raise ValueError(f"{path}: mean and std are {seen}, expected numbers, the last above 0")

    def show(self, source: Dataset, folder: Path) -> str:
        assert isinstance(source, SoundDataset)
        self.save(folder)
        sample = source.fetch(rows_to_show(len(source), self.config.seed))
        shown = sound_grid(sample, self.recipes, folder / "views.png", mel=self.mel, seed=self.config.seed)
        line = f"views: {self.preset}, shown in {shown}; choose others with --views"
        if source.clipped:
            path = folder / "clipped.txt"
            path.write_text("".join(f"{name}\n" for name in source.clipped), encoding="utf-8")
            line += f"\n{len(source.clipped)} sounds are clipped (recorded too loud) and are kept: {path}"
        return line


def as_int16(waves: Tensor) -> Tensor:
    """Waves as the data have them, from int16 or from floating point in [-1, 1]."""
    if waves.is_floating_point():
        return (waves.clamp(-1, 1) * 32_767).round().to(torch.int16)
    return waves.to(torch.int16)


def log_mel_statistics(sounds: Dataset, prepare: SoundPreparation) -> tuple[float, float]:
    """Mean and deviation of the log-mels of up to 1,000 sounds."""
    count, total, squares = 0, 0.0, 0.0
    prepare = replace(prepare, mean=0.0, std=1.0)
    for part in torch.linspace(0, len(sounds) - 1, min(_MEASURED, len(sounds))).long().split(64):
        x = prepare(sounds.fetch(part)).double()
        x = x[~x.isnan()]
        count, total, squares = count + x.numel(), total + float(x.sum()), squares + float(x.square().sum())
    mean = total / count
    return mean, max((squares / count - mean**2) ** 0.5, 1e-3)
