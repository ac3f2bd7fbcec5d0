"""The trained encoder as a file: safetensors beside a card that says how to feed it."""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearfar.config import DataConfig, TrainConfig, build
from nearfar.data.cache import replacing
from nearfar.data.dataset import Dataset
from nearfar.modalities import modality_of
from nearfar.modalities.image.backbones import OWN, backbone
from nearfar.modalities.series.data import has_series_splits
from nearfar.modalities.series.modality import Series
from nearfar.modalities.sound.data import OVER
from nearfar.modalities.sound.files import decode_sound
from nearfar.modalities.sound.modality import Sounds
from nearfar.modalities.text.modality import sentences_of
from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.model.card import Card, make_card, preparation, read_card
from nearfar.nn.towers import TwoTowers

Kind = Literal["image", "image-text", "text", "sound", "series"]
MODEL, CARD = "model.safetensors", "card.json"


def save_model(
    encoder: nn.Module,
    config: TrainConfig,
    feeding: Mapping[str, Any],
    folder: Path,
    *,
    temperature: float | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write `model.safetensors` and `card.json` of a run, each whole or not at all."""
    write_model(encoder.state_dict(), make_card(config, feeding, temperature=temperature, data=data), folder)


def write_model(weights: Mapping[str, Tensor], card: Card, folder: Path) -> None:
    """Write weights and card, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(weights, folder / MODEL)
    with replacing(folder / CARD) as fresh:
        fresh.write_text(json.dumps(card, indent=1, ensure_ascii=False), encoding="utf-8")


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Tensors by name as a safetensors file."""
    with replacing(path) as fresh:
        # Copies: safetensors refuses tensors that share memory, as tied weights do.
        save_file({name: x.detach().cpu().contiguous().clone() for name, x in weights.items()}, fresh)


class Model(nn.Module):
    """A trained backbone with its card.

    Attributes:
        num_features: F.
    """

    def __init__(self, backbone: nn.Module, card: Card, *, features: int | None = None) -> None:
        super().__init__()
        self.backbone, self.card = backbone, card
        self.num_features: int = backbone.num_features if features is None else features  # type: ignore[assignment]

    def digest(self) -> str:
        """A short text that is another as soon as any weight or the preparation is."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(repr([self.card["backbone"], self._fed()]).encode())
        for name, x in sorted(self.backbone.state_dict().items()):
            digest.update(name.encode())
            digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def _fed(self) -> object:
        """What the features depend on beside the weights."""
        return self.card.get("preprocessing")


class Encoder(Model):
    """A trained backbone with its preparation: images in, features out.

    >>> encoder = nearfar.load("runs/mine")  # doctest: +SKIP
    >>> features = encoder.embed(images)  # (B, 3, H, W) uint8 to (B, F)  # doctest: +SKIP
    """

    def __init__(self, backbone: nn.Module, card: Card, *, features: int | None = None) -> None:
        super().__init__(backbone, card, features=features)
        self.preparation = preparation(card)

    def prepare(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) uint8, or floating point in [0, 1], to the backbone's input."""
        return self.preparation(images)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, S, S) prepared input to (B, F); `embed` takes images as they are."""
        check_prepared(x)
        h: Tensor = self.backbone(x)
        return h

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """(B, F) features of raw images."""
        return self(self.prepare(images))  # type: ignore[no-any-return]

    def _fed(self) -> object:
        return self.preparation


def check_prepared(x: Tensor) -> None:
    """Floating point: bytes would be images as they are."""
    if not x.is_floating_point():
        raise TypeError(f"the encoder was given {x.dtype}, expected prepared images; encoder.embed(images) prepares")


class ReadingEncoder(Encoder):
    """An encoder of images that reads texts, too, into the same space."""

    def __init__(self, towers: TwoTowers, card: Card, tokenizer: Tokenizer) -> None:
        super().__init__(towers, card)
        self.tokenizer = tokenizer
        temperature = card.get("temperature")
        self.logit_scale = 1 / temperature if isinstance(temperature, float) and temperature > 0 else 100.0

    @torch.no_grad()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(B, F) of B texts; their cosine with `embed` of images says how well they fit."""
        tokens = self.tokenizer.encode(_several(texts)).to(next(self.backbone.parameters()).device)
        z: Tensor = self.backbone.second(tokens)  # type: ignore[operator]
        return z


def _several(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError(f"texts is one text, {texts[:40]!r}, expected a list of them")
    return list(texts)


class TextModel(Model):
    """A trained text encoder with its tokenizer: sentences in, features out."""

    def __init__(self, backbone: nn.Module, card: Card, tokenizer: Tokenizer) -> None:
        super().__init__(backbone, card)
        self.tokenizer = tokenizer

    def prepare(self, tokens: Tensor) -> Tensor:
        return tokens

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L) tokens to (B, F); `embed_texts` takes sentences."""
        h: Tensor = self.backbone(tokens)
        return h

    @torch.no_grad()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(B, F) of B sentences."""
        tokens = self.tokenizer.encode(_several(texts)).to(next(self.backbone.parameters()).device)
        return self(tokens)  # type: ignore[no-any-return]

    def open(self, spec: str, *, split: str | None = None, labels: bool | None = None) -> Dataset:
        """The sentences of a file, each named by its own words; the run's own data as the run read them."""
        config: TrainConfig = build(TrainConfig, self.card["config"], CARD)
        sources = config.sources if spec == config.data else DataConfig()
        return sentences_of(spec, sources, self.tokenizer, split=split, labels=labels)


class SoundModel(Model):
    """A trained encoder of sounds with its preparation: waves in, features out.

    Attributes:
        modality: opens sounds as the run did.
    """

    def __init__(self, backbone: nn.Module, card: Card, config: TrainConfig) -> None:
        super().__init__(backbone, card)
        self.modality = Sounds(config).fed(float(card["mean"]), float(card["std"]))
        self.preparation = self.modality.preparation
        # Values of the wave to one of `frames`, whichever the encoder hears.
        self.hop = int(getattr(backbone, "hop", 1)) * (1 if self.modality.wave else self.modality.mel.hop)

    def open(self, spec: str, *, split: str | None = None, labels: bool | None = None) -> Dataset:
        """The sounds of a name or path at the encoder's rate; the run's own data as the run read them."""
        config = self.modality.config
        sources = config.sources if spec == config.data else DataConfig()
        config = replace(config, sources=replace(sources, labels=sources.labels if labels is None else labels))
        return Sounds(config).fed(self.modality.mean, self.modality.std).open(spec, split=split)

    @property
    def rate(self) -> int:
        """Values a second."""
        return self.modality.config.sound.rate

    def prepare(self, waves: Tensor) -> Tensor:
        """(B, L) int16, -32768 behind the end of a sound, to the backbone's input."""
        return self.preparation(waves)

    def forward(self, x: Tensor) -> Tensor:
        """Prepared input to (B, F); `embed` takes waves, `embed_files` files."""
        h: Tensor = self.backbone(x)
        return h

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Prepared input to (B, L, D) and (B, L) booleans, False behind the end; of encoders that have frames."""
        found: tuple[Tensor, Tensor] = self.backbone.frames(x)  # type: ignore[operator]
        return found

    @torch.no_grad()
    def embed(self, waves: Tensor) -> Tensor:
        """(B, F) of (B, L) waves at `rate`, int16 as the data give them, or floating point in [-1, 1]."""
        if not isinstance(waves, Tensor) or waves.ndim != 2 or 0 in waves.shape:
            seen = f"a tensor of shape {tuple(waves.shape)}" if isinstance(waves, Tensor) else repr(waves)[:60]
            raise ValueError(f"waves are {seen}, expected a tensor (B, L) of sounds; embed_files takes their files")
        if waves.is_floating_point():
            waves = (waves.clamp(-1, 1) * 32_767).round().to(torch.int16)
        return self(self.prepare(waves))  # type: ignore[no-any-return]

    def embed_files(self, paths: Sequence[str | Path]) -> Tensor:
        """(B, F) of B sound files."""
        most = round(self.modality.config.sound.longest * self.rate)
        waves = [torch.from_numpy(decode_sound(Path(path), self.rate).values[:most]) for path in paths]
        batch = torch.full((len(waves), max(map(len, waves))), OVER, dtype=torch.int16)
        for row, wave in zip(batch, waves, strict=True):
            row[: len(wave)] = wave
        return self.embed(batch.to(next(self.parameters()).device))

    def _fed(self) -> object:
        return self.preparation


class SeriesModel(Model):
    """A trained encoder of series with its preparation: series in, features out, or a row for every frame."""

    def __init__(self, backbone: nn.Module, card: Card) -> None:
        super().__init__(backbone, card)
        config: TrainConfig = build(TrainConfig, card["config"], CARD)
        self.modality, self.hop = Series(config), int(backbone.hop)  # type: ignore[arg-type]

    def prepare(self, series: Tensor) -> Tensor:
        """(B, C, T), NaN behind the end of a shorter series, to the encoder's input."""
        return self.modality.preparation(series)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T) prepared series to (B, F); `embed` takes them as they are."""
        h: Tensor = self.backbone(x)
        return h

    @torch.no_grad()
    def embed(self, series: Tensor) -> Tensor:
        """(B, F) features of series as they are."""
        return self(self.prepare(series))  # type: ignore[no-any-return]

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Prepared series to (B, L, D), a row every `hop` steps, and (B, L) booleans: False behind an end."""
        found: tuple[Tensor, Tensor] = self.backbone.frames(x)  # type: ignore[operator]
        return found

    def open(self, spec: str | Path, *, split: str | None = None) -> Dataset:
        """Series by name or path, of as many channels as the encoder takes."""
        if split is not None and not has_series_splits(spec):
            raise ValueError(f"{spec} has no splits, so there is no {split!r}; expected NAME_TRAIN beside NAME_TEST")
        return self.modality.open(str(spec), split=split)

    def _fed(self) -> object:
        return self.modality.preparation


Loaded = Encoder | TextModel | SoundModel | SeriesModel


@overload
def load(run: str | Path, modality: Literal["image"]) -> Encoder: ...
@overload
def load(run: str | Path, modality: Literal["image-text"]) -> ReadingEncoder: ...
@overload
def load(run: str | Path, modality: Literal["text"]) -> TextModel: ...
@overload
def load(run: str | Path, modality: Literal["sound"]) -> SoundModel: ...
@overload
def load(run: str | Path, modality: Literal["series"]) -> SeriesModel: ...
@overload
def load(run: str | Path, modality: None = None) -> Loaded: ...


def load(run: str | Path, modality: Kind | None = None) -> Loaded:
    """The encoder of a finished run, or of an exported folder, in evaluation mode; nothing is unpickled.

    Args:
        run: the folder.
        modality: what is expected of it: "image" (which one trained with captions is, too), "image-text", "text",
            "sound" or "series"; a type checker then knows what comes back, and another encoder is an error. None:
            whatever it is.

    Returns:
        An `Encoder` of images, which is a `ReadingEncoder` where it was trained with captions, a `SeriesModel`, a
        `SoundModel` or a `TextModel`.
    """
    if modality is not None and modality not in _KINDS:
        raise ValueError(f"modality is {modality!r}, expected one of {', '.join(_KINDS)}, or None")
    model = _load(run)
    if modality is not None and not isinstance(model, _KINDS[modality][0]):
        found = next(words for kind, words in reversed(_KINDS.values()) if isinstance(model, kind))
        raise ValueError(f"{run} is {found}, expected {_KINDS[modality][1]}")
    return model


_KINDS: dict[str, tuple[type[Model], str]] = {  # with what each is called; the last that fits is what a model is
    "image": (Encoder, "an encoder of images"),
    "image-text": (ReadingEncoder, "an encoder of images and texts"),
    "text": (TextModel, "an encoder of texts"),
    "sound": (SoundModel, "an encoder of sounds"),
    "series": (SeriesModel, "an encoder of series"),
}


def _load(run: str | Path) -> Loaded:
    folder = Path(run)
    if not (folder / MODEL).is_file() or not (folder / CARD).is_file():
        raise FileNotFoundError(f"{folder} holds no {MODEL} and {CARD}, expected the folder of a finished run")
    card = read_card(folder / CARD)
    weights = _read_weights(folder / MODEL)
    if card["backbone"] not in OWN:  # first without memory: a card may name a huge network
        with contextlib.suppress(RuntimeError), torch.device("meta"):  # a few cannot be built so
            _check_fit(weights, rebuilt(card, folder), folder / MODEL, card["backbone"])
    network = rebuilt(card, folder)
    _check_fit(weights, network, folder / MODEL, card["backbone"])
    network.load_state_dict(weights)
    return with_card(network, card, folder).eval()


def load_images(run: str | Path) -> Encoder:
    """`load` of what encodes images."""
    return load(run, "image")


def rebuilt(card: Card, folder: Path) -> nn.Module:
    """The network of a card, before its weights."""
    if card.get("modality", "image") == "image":
        return backbone(card["backbone"], size=card["image_size"], published_stem=card.get("pretrained") is True)
    config: TrainConfig = build(TrainConfig, card["config"], str(folder / CARD))
    if config.text.tokenizer is not None:  # a copy of it lies beside the weights
        config = replace(config, text=replace(config.text, tokenizer=str(folder)))
    return modality_of(config).encoder(untrained=True)


def with_card(network: nn.Module, card: Card, folder: Path) -> Loaded:
    """A network as a user meets it."""
    kind = card.get("modality", "image")
    if kind == "image":
        return Encoder(network, card)
    if kind == "series":
        return SeriesModel(network, card)
    if kind == "sound":
        return SoundModel(network, card, build(TrainConfig, card["config"], str(folder / CARD)))
    tokenizer = Tokenizer.load(folder, length=card["config"]["text"]["length"])
    if kind == "text":
        return TextModel(network, card, tokenizer)
    assert isinstance(network, TwoTowers)
    return ReadingEncoder(network, card, tokenizer)


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is not a whole safetensors file ({reason}); copy or export it again") from None


def _check_fit(weights: Mapping[str, Tensor], network: nn.Module, path: Path, name: str) -> None:
    own = network.state_dict()
    for problem, keys in (
        ("lacks", own.keys() - weights.keys()),
        ("has too much:", weights.keys() - own.keys()),
        ("has another shape of", {k for k in own.keys() & weights.keys() if own[k].shape != weights[k].shape}),
    ):
        if keys:
            first, more = min(keys)[:80], f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ValueError(f"{path} does not fit backbone {name!r}: it {problem} {first!r}{more}; export it again")
    for key, x in weights.items():
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise ValueError(f"{path}: {key} has values that are not finite; train or export again")
