"""What a run is a function of: frozen dataclasses, as YAML in the run folder and as flags of the command."""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

_LARGEST_SIDE = 8192  # pixels; a batch of larger ones is a mistake, and no machine's memory
_LARGEST_YAML = 1 << 20  # bytes


@dataclass(frozen=True)
class ReadConfig:
    """How samples are read, beyond the name or path itself."""

    size: int | None = None  # side of the stored image; None: a little more than the views need
    path_column: str | None = None  # of a table
    label_column: str | None = None  # of a table
    caption_column: str | None = None  # of a table of images: what each shows
    text_column: str | None = None  # of a table of sentences
    partner_column: str | None = None  # of a table of sentences: what belongs to each, the other text of a pair
    negative_column: str | None = None  # of a table of sentences: what does not, the third text of a triple
    pattern: str | None = None  # of the names of sound files, such as {label}_{speaker}_{take}: in braces, columns
    held_out: str | None = None  # rows of a table or pattern for the test alone, such as speaker=theo,george
    stream: bool = False  # decode at every look instead of packing
    strict: bool = False  # stop at a broken file instead of skipping it

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= _LARGEST_SIDE:
            raise ValueError(f"sources.size is {self.size}, expected at least 1 pixel, at most {_LARGEST_SIDE:,}")
        if self.held_out is not None and not re.fullmatch(r"[^=!]+=.+", self.held_out):
            raise ValueError(f"sources.held_out is {self.held_out!r}, expected COLUMN=VALUE or COLUMN=VALUE,VALUE")

    @property
    def kept(self) -> str | None:
        """The split of the rows that are not held out."""
        return None if self.held_out is None else self.held_out.replace("=", "!=", 1)


@dataclass(frozen=True)
class DataConfig(ReadConfig):
    """Where the samples of a run come from."""

    labels: bool | None = None  # true: sub-folders are labels, as they are not unless asked for; false: none are read
    group_column: str | None = None  # of one group: never negatives; None: a column called group, "": none
    groups: str | None = None  # a table of path and group to the same end, as `nearfar doctor` writes it
    validation: float = 0.1  # part of the training data held out, at most 2,000 samples
    test: str | None = None  # data of the final evaluation; None: the data's own test part, or the validation samples
    shuffle: int = 10_000  # of streamed shards: places that a sample may move in their order, which is drawn, too

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shuffle < 0:
            raise ValueError(f"sources.shuffle is {self.shuffle}, expected at least 0")


@dataclass(frozen=True)
class OptimizerConfig:
    """How the weights move."""

    name: Literal["sgd", "adamw", "lars"] = "sgd"  # the optimiser
    lr: float | None = None  # at batch 256, scaled linearly with the batch; None: 0.06, 1e-3 or 0.3 by name
    weight_decay: float | None = None  # never on norms, biases and scalars; None: 5e-4, 0.05 or 1e-6 by name
    momentum: float = 0.9  # of SGD and LARS
    warmup: float = 0.05  # part of the run in which the rate rises linearly
    final: float = 0.0  # part of the rate left at the end of the cosine
    clip: float | None = None  # largest gradient norm


@dataclass(frozen=True)
class TextConfig:
    """How texts become tokens and features, in runs on sentences and on images with captions."""

    encoder: str = "text-tiny"  # the text tower beside images; of sentences alone, `backbone` is the encoder
    tokenizer: str | None = None  # a tokenizer.json, its folder or a name of the Hugging Face hub; None: learned
    vocabulary: int = 8192  # tokens at most, where it is learned
    length: int = 64  # tokens of a text at most
    pooling: Literal["mean", "cls", "last"] = "mean"  # over the tokens of a text, or its first, or its last
    causal: bool = False  # a token sees those before it alone
    dropout: float | None = None  # None: 0.1 of sentences alone, whose only view it is, else 0
    dim: int = 256  # of the space that images and texts share

    def __post_init__(self) -> None:
        for name, least, most in (("vocabulary", 260, 10**7), ("length", 3, 10**5), ("dim", 1, 10**5)):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"text.{name} is {getattr(self, name)}, expected at least {least}, at most {most:,}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"text.dropout is {self.dropout}, expected a part from 0 to below 1")


@dataclass(frozen=True)
class SoundConfig:
    """How sounds become waves and spectrograms; the defaults are BYOL-A's."""

    rate: int = 16_000  # values a second, to which every file is brought
    seconds: float = 0.95  # of a view; shorter sounds are put into silence
    longest: float = 10.0  # seconds of a sound that are looked at; of a longer one the first
    mels: int = 64  # bands of the spectrogram
    window: float = 0.064  # seconds of a frame
    hop: float = 0.01  # seconds from one frame to the next
    low: float = 60.0  # Hz, the lowest of the bands
    high: float | None = None  # Hz, the highest; None: 7,800 at 16 kHz, and in that proportion
    normalize: Literal["data", "sound"] = "data"  # by the training data's mean and deviation, or each sound by its own

    def __post_init__(self) -> None:
        for name in ("seconds", "longest", "window", "hop"):
            if not 0 < getattr(self, name) < 3600:
                raise ValueError(f"sound.{name} is {getattr(self, name)}, expected seconds above 0")
        if not 100 <= self.rate <= 384_000:
            raise ValueError(f"sound.rate is {self.rate}, expected values a second, such as 16000")
        if self.seconds > self.longest:
            raise ValueError(f"sound.seconds is {self.seconds}, more than sound.longest, {self.longest}")
        if not 1 <= self.mels <= 4096:
            raise ValueError(f"sound.mels is {self.mels}, expected at least 1, at most 4,096")


@dataclass(frozen=True)
class SeriesConfig:
    """How series are fed to their encoder."""

    normalize: Literal["series", "data"] = "series"  # by each series' own mean and deviation, or the training data's
    channels: int | None = None  # None: what the data have
    mean: list[float] | None = None  # of each channel, for "data"; None: measured on the training data
    std: list[float] | None = None  # the same of the deviation

    def __post_init__(self) -> None:
        if self.channels is not None and self.channels < 1:
            raise ValueError(f"series.channels is {self.channels}, expected at least 1")
        if (self.mean is None) != (self.std is None):
            raise ValueError("of series.mean and series.std one is given, expected both or neither")
        if self.std is not None and not all(0 < value < float("inf") for value in self.std):
            raise ValueError(f"series.std is {self.std}, expected numbers above 0")


BUILT_IN_KINDS = {"melodies": "sound", "spoken": "sound"}  # data made by code that any method may be trained on
_SERIES = re.compile(r"waves(:\d+)?|.*\.ts|.*_(train|test)\.(tsv|csv|npz)", re.IGNORECASE)


Kind = Literal["image", "image-text", "series", "sound", "text"]


def kind_of(data: str, method: str, modality: str | None) -> str:
    """ "image", "image-text", "series", "sound" or "text".

    >>> kind_of("photos/", "moco", None), kind_of("lines.txt", "simclr", None), kind_of("pairs.csv", "clip", None)
    ('image', 'text', 'image-text')
    >>> kind_of("waves", "byol", None), kind_of("ECG200_TRAIN.tsv", "moco", None), kind_of("steps.npz", "cpc", None)
    ('series', 'series', 'series')
    """
    if modality is None and _SERIES.fullmatch(data):
        return "series"
    built_in = BUILT_IN_KINDS.get(data.partition(":")[0])
    if modality or built_in:
        return str(modality or built_in)
    from nearfar.methods import known_method  # here, since it imports torch

    served = known_method(method).modalities
    return "text" if data.endswith(".txt") and "text" in served else served[0]


@dataclass(frozen=True)
class TrainConfig:
    """One pretraining run."""

    data: str = "glyphs"  # built-in data, a folder, a table, arrays, or a torchvision data set by name
    method: str = "simclr"  # simclr, moco, byol, ...; a name that is not known lists them all; MODULE:NAME is your own
    backbone: str = "tiny"  # built-in, a name of timm's, or torchvision:NAME
    pretrained: bool = False  # begin with the backbone's published weights; needs a network once
    weights: str | None = None  # or with those of a local file, safetensors or torch
    image_size: int = 32  # side of the views
    epochs: int = 20  # passes over the training data
    batch_size: int = 256  # samples to a step, each in two views
    micro_batch: int | None = None  # samples encoded at a time, gradient still the whole batch's; None: all at once
    tile: int | None = None  # side of the tiles of similarities held at a time; None: what fits the cache
    seed: int = 0  # of weights, order and views
    device: str = "auto"  # or cpu, cuda, cuda:1, mps
    precision: Literal["32", "bf16", "fp16"] = "32"  # of the forward pass
    accumulate: int = 1  # batches to one optimiser step
    processes: int = 1  # on each machine, one to a GPU; they share the batch, and train as one would
    nodes: int = 1  # machines
    strategy: Literal["ddp", "fsdp"] = "ddp"  # of several processes: each has all weights, or a part of them
    gather: Literal["gather", "ring"] = "gather"  # all rows to each process, or keys that travel, in linear memory
    channels_last: bool = True  # memory layout of the images: faster for most convolutions
    views: str | None = None  # preset; None: the method's own
    options: dict[str, Any] = field(default_factory=dict)  # the method's hyperparameters, such as temperature
    health_every: int = 100  # steps between looks at the health
    checkpoint_every: int = 500  # steps between checkpoints; one is written at the end of each epoch, too
    tensorboard: bool = False  # write its event files, too
    modality: Kind | None = None  # kind of data; None: what the method is for
    sources: DataConfig = field(default_factory=DataConfig)  # where the samples come from
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)  # how the weights move
    text: TextConfig = field(default_factory=TextConfig)  # how texts become tokens and features
    series: SeriesConfig = field(default_factory=SeriesConfig)  # how series are fed
    sound: SoundConfig = field(default_factory=SoundConfig)  # how sounds become waves and spectrograms

    @property
    def kind(self) -> str:
        """The modality: what was asked for, else what the method is for, else what the data look like."""
        return kind_of(self.data, self.method, self.modality)

    def __post_init__(self) -> None:
        counts = ("image_size", "epochs", "batch_size", "accumulate", "health_every", "checkpoint_every")
        for name in (*counts, "processes", "nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.batch_size < self.processes * self.nodes:
            raise ValueError(
                f"batch_size is {self.batch_size} for {self.processes * self.nodes} processes, expected a sample or "
                "more for each: it is that of all together"
            )
        if not self.data.strip():
            raise ValueError("data is empty, expected the name of a data set or a path")
        if self.pretrained and self.weights is not None:
            raise ValueError(f"pretrained is True and weights is {self.weights!r}, expected one of them")
        for name in ("lr", "clip"):
            if (value := getattr(self.optimizer, name)) is not None and not value > 0:
                raise ValueError(f"optimizer.{name} is {value}, expected above 0")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed is {self.seed}, expected at least 0, and below 2^63")
        if self.image_size > _LARGEST_SIDE:
            raise ValueError(f"image_size is {self.image_size}, expected at most {_LARGEST_SIDE:,} pixels")
        if self.batch_size < 2:
            raise ValueError("batch_size is 1, expected at least 2: a batch of one has no negatives")
        self._check_parts()
        if not 0 <= self.sources.validation < 1:
            raise ValueError(f"sources.validation is {self.sources.validation}, expected a part from 0 to below 1")

    def _check_parts(self) -> None:
        if self.tile is not None and self.tile < 1:
            raise ValueError(f"tile is {self.tile}, expected at least 1")
        if self.micro_batch is None:
            return
        if self.micro_batch < 2 or self.batch_size // -(-self.batch_size // self.micro_batch) < 2:
            raise ValueError(
                f"micro_batch is {self.micro_batch} of {self.batch_size} samples, expected parts of at least 2: "
                "batch-norm has no deviation of one"
            )

    def to_yaml(self) -> str:
        return str(yaml.safe_dump(asdict(self), sort_keys=False, allow_unicode=True))

    @classmethod
    def from_yaml(cls, path: Path) -> "TrainConfig":
        """The configuration in a file; an unknown key is an error that names the nearest known one."""
        config: TrainConfig = build(cls, read_yaml(path), str(path))
        return config


@dataclass(frozen=True)
class HeadConfig:
    """Protocol sgd: a linear layer on the frozen encoder, trained on augmented images."""

    epochs: int = 20  # at most
    lr: float = 0.1  # at batch 256, scaled linearly
    batch_size: int = 256  # images to a step
    patience: int = 5  # epochs without a better validation accuracy, after which it stops


@dataclass(frozen=True)
class FinetuneConfig:
    """Protocol finetune: encoder and linear layer, trained on a part of the labels.

    An epoch has at least ten steps: few labels are gone through several times in each.
    """

    labels: list[float] = field(default_factory=lambda: [0.01, 0.1, 1.0])  # parts of each class to train on
    per_class: list[int] = field(default_factory=list)  # or so many labels of each class, in place of parts
    frozen: bool = False  # train the linear layer alone
    epochs: int = 30  # at most, each of ten steps or more: few labels are gone through several times in one
    lr: float = 1e-3  # of the last layer
    layer_decay: float = 0.75  # the rate of each layer, as a part of that of the layer above it
    batch_size: int = 128  # images to a step
    patience: int = 5  # epochs without a better validation accuracy, after which it stops


@dataclass(frozen=True)
class DetectionConfig:
    """Protocol detection: a detector on the encoder, trained on boxes."""

    head: Literal["fcos", "retinanet"] = "fcos"  # the detector
    size: int = 256  # most pixels of a picture's longer side; smaller pictures stay as they are
    epochs: int = 30  # all of them: nothing stops it early
    lr: float = 5e-4  # of AdamW
    batch_size: int = 8  # pictures to a step
    frozen: bool = False  # train pyramid and head alone
    flip: bool = True  # mirror half of the training pictures; glyph scenes are never mirrored

    def __post_init__(self) -> None:
        if self.head not in ("fcos", "retinanet"):
            raise ValueError(f"detection.head is {self.head!r}, expected 'fcos' or 'retinanet'")
        for name, least in (("size", 32), ("epochs", 1), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"detection.{name} is {getattr(self, name)}, expected at least {least}")
        if not 0 < self.lr < 1:
            raise ValueError(f"detection.lr is {self.lr}, expected between 0 and 1")


@dataclass(frozen=True)
class CTCConfig:
    """Protocol ctc: words in a row, made of the words of the data, recognised by a head on the encoder's frames."""

    units: Literal["words", "characters"] = "words"  # what is recognised: whole words, or letters of their names
    sequences: int = 1000  # to train on
    tests: int = 300  # to test on
    fewest: int = 2  # words of a sequence
    most: int = 5  # words of a sequence
    silence: float = 0.2  # seconds between two words, at most
    hidden: int = 128  # features of the recurrent layer, in each direction
    epochs: int = 15  # all of them: nothing stops it early
    lr: float = 3e-3  # of AdamW
    batch_size: int = 32  # sequences to a step

    def __post_init__(self) -> None:
        for name in ("sequences", "tests", "fewest", "hidden", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"ctc.{name} is {getattr(self, name)}, expected at least 1")
        if self.most < self.fewest:
            raise ValueError(f"ctc.most is {self.most}, less than ctc.fewest, {self.fewest}")
        if not 0 <= self.silence < 60 or not 0 < self.lr < 1:
            raise ValueError(f"ctc.silence is {self.silence} and ctc.lr {self.lr}, expected seconds and a small rate")


@dataclass(frozen=True)
class ProtocolConfig:
    """How the protocols measure; see `nearfar.evaluation.PROTOCOLS`."""

    band: float = 1.0  # of dynamic time warping: how far from the diagonal, as a part of the longer series
    cells: float = 5e9  # of dynamic time warping at most, about a minute's work; what needs more is not measured
    frames: int = 8  # of each sample, evenly spaced, that the readout of frames looks at
    neighbours: list[int] = field(default_factory=lambda: [20, 1, 5, 200])  # k of k-NN; all metrics for the first
    temperature: float = 0.07  # divides the similarity of k-NN's votes
    search: Literal["tiles", "faiss"] = "tiles"  # how neighbours are found; both are exact
    cutoffs: list[int] = field(default_factory=lambda: [1, 5, 10])  # k of retrieval's recall@k and precision@k
    queries: int = 10_000  # images that retrieval asks for, at most
    pairs: int = 20_000  # that verification compares, at most, of each kind
    views: int = 8  # of each image, for geometry's alignment and LiDAR
    viewed: int = 500  # images that geometry looks at in several views
    validation: float = 0.1  # part of the training rows on which strength and number of epochs are chosen
    resamples: int = 200  # of the bootstrap, for the intervals
    templates: str | None = None  # zero-shot's: a file, or a text with {} for the name; None: as captions have them
    sgd: HeadConfig = field(default_factory=HeadConfig)  # of the protocol sgd
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)  # of the protocol finetune
    detection: DetectionConfig = field(default_factory=DetectionConfig)  # of the protocol detection
    ctc: CTCConfig = field(default_factory=CTCConfig)  # of the protocol ctc

    def __post_init__(self) -> None:
        for name in ("neighbours", "cutoffs"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ValueError(f"{name} is {values}, expected whole numbers of at least 1")
        for name, least in (
            ("frames", 1),
            ("queries", 1),
            ("pairs", 1),
            ("views", 2),
            ("viewed", 2),
            ("resamples", 20),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least {least}")
        if not 0 <= self.band <= 1:
            raise ValueError(f"band is {self.band}, expected a part from 0 to 1")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}, expected above 0, such as 0.07")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation is {self.validation}, expected a part between 0 and 1")
        labels = self.finetune.labels
        if not labels or not all(0 < part <= 1 for part in labels):
            raise ValueError(f"finetune.labels is {labels}, expected parts above 0 and up to 1, such as 0.01 0.1 1")
        if any(count < 1 for count in self.finetune.per_class):
            raise ValueError(f"finetune.per_class is {self.finetune.per_class}, expected whole numbers of at least 1")
        if not 0 < self.finetune.layer_decay <= 1:
            raise ValueError(f"finetune.layer_decay is {self.finetune.layer_decay}, expected above 0 and up to 1")
        for group, settings in (("sgd", self.sgd), ("finetune", self.finetune)):
            for name in ("epochs", "batch_size", "patience"):
                if getattr(settings, name) < 1:
                    raise ValueError(f"{group}.{name} is {getattr(settings, name)}, expected at least 1")
            if settings.lr <= 0:
                raise ValueError(f"{group}.lr is {settings.lr}, expected above 0")


# What a run starts from where nothing else is asked for: of every kind of data, and on built-in data of that kind.
# `options` are those of the default method; those of glyphs, the batch and the views were chosen on fonts held out of
# the training fonts. What a method brings with it is in its class (`Method.settings`).
TRANSFORMERS = "transformers:"  # before a folder or a name of the Hugging Face hub
OF_KIND: dict[str, dict[str, Any]] = {
    "image": {},
    "image-text": {"optimizer": {"name": "adamw"}},
    "series": {"backbone": "dilated-small", "batch_size": 64, "epochs": 50, "optimizer": {"name": "adamw", "lr": 4e-3}},
    "text": {"backbone": "text-tiny", "batch_size": 64, "optimizer": {"name": "adamw"}},
    "sound": {"backbone": "audio-tiny", "batch_size": 64, "optimizer": {"name": "adamw"}},
}
BUILT_IN: dict[tuple[str, str], dict[str, Any]] = {
    ("image", "glyphs"): {
        "views": "shapes",
        "backbone": "strokes",
        "epochs": 7,
        "batch_size": 64,
        "optimizer": {"name": "adamw", "lr": 8e-3},
        "options": {"temperature": 0.2, "layers": 1, "dim": 256},
    },
    ("series", "waves"): {"epochs": 10, "options": {"temperature": 0.2}},
    ("sound", "melodies"): {"sound": {"rate": 8000, "seconds": 1.0, "low": 100.0}},
    ("image-text", "glyphs"): {
        "backbone": "strokes",
        "batch_size": 64,
        "optimizer": {"name": "adamw", "lr": 4e-3},
        "text": {"encoder": "text-micro", "vocabulary": 512, "length": 24, "dim": 128},
    },
}


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, and around it what its kind of data starts from, and what built-in data bring with them.

    A method's options stay away from another method, an optimiser's rate from another optimiser.

    >>> completed({"data": "photos/", "epochs": 3})
    {'data': 'photos/', 'epochs': 3}
    >>> completed({"data": "glyphs:400", "epochs": 3, "optimizer": {"name": "sgd"}})["optimizer"]
    {'name': 'sgd'}
    >>> completed({"data": "lines.txt", "method": "simcse"})["backbone"]
    'text-tiny'
    """
    data, method = str(given.get("data", TrainConfig.data)), str(given.get("method", TrainConfig.method))
    from nearfar.methods import find_method, known_method

    outside = ":" in method
    declared = find_method(method) if outside else known_method(method)
    kind = kind_of(data, method, given.get("modality"))
    if kind in ("image", "series") and given.get("modality") is None and _are_sounds(data):
        kind = "sound"
        given = {**given, "modality": kind}  # written down: the data may be gone when it is asked next
    own = {
        # Written down, since the run folder must be readable where the code is not.
        **({"modality": kind, "views": declared.views_of(kind) or None} if outside else {}),
        **OF_KIND.get(kind, {}),
        **BUILT_IN.get((kind, data.partition(":")[0]), {}),
        **declared.settings.get(kind, {}),
    }
    if method != TrainConfig.method:
        own.pop("options", None)
    if "name" in (rates := given.get("optimizer") or {}) and rates["name"] != own.get("optimizer", {}).get("name"):
        own.pop("optimizer", None)
    merged = {**own, **{name: value for name, value in given.items() if value is not None}}
    _complete_text(kind, given, merged)
    for name in ("optimizer", "options", "series", "sound", "text"):
        if isinstance(asked := merged.get(name), Mapping):
            merged[name] = {**own.get(name, {}), **asked}
    return merged


def _are_sounds(data: str) -> bool:
    """Whether the data are files of sounds; only where there are files to look at."""
    if not Path(data).expanduser().exists():
        return False
    from nearfar.modalities.sound.data import are_sounds

    return are_sounds(data)


def _complete_text(kind: str, given: Mapping[str, Any], merged: dict[str, Any]) -> None:
    """A sentence's encoder may be named as an image's text encoder is; a model of transformers reads its own tokens."""
    text = dict(given.get("text") or {})
    if kind == "text" and text.get("encoder") and not given.get("backbone"):
        merged["backbone"] = text["encoder"]
    part = (merged, "backbone") if kind == "text" else (text, "encoder")
    name = str(part[0].get(part[1]) or "")
    if kind not in ("text", "image-text") or not name.startswith(TRANSFORMERS):
        return
    source = name.removeprefix(TRANSFORMERS)
    if Path(source).expanduser().is_dir():  # found from elsewhere, too
        source = str(Path(source).expanduser().absolute())
        part[0][part[1]] = TRANSFORMERS + source
    text.setdefault("tokenizer", source)
    merged["text"] = text


def build(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A configuration dataclass from plain values, refusing keys it does not have."""
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind)}
    given = {}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"{where}: there is no key {_shown(key)}{nearest(str(key)[:80], known)}")
        inner = hints[key]
        if not _is_config(inner):
            given[key] = _fitting(value, inner, f"{where}: {key}")
        elif isinstance(value or {}, Mapping):
            given[key] = build(inner, value or {}, f"{where}: {key}")
        else:
            raise ValueError(f"{where}: {key} is {_shown(value)}, expected keys and values")
    return kind(**given)


def _fitting(value: Any, hint: Any, where: str) -> Any:
    """The value as the field wants it: 32 for "32", a path for its text, and "1e-3", which YAML reads as text."""
    kinds = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    for kind in kinds:
        plain, inside = get_origin(kind) or kind, get_args(kind)
        if plain is Literal and str(value) in inside:
            return str(value)
        if plain is float and isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            if not math.isfinite(number):
                raise ValueError(f"{where} is {number}, expected a finite number")
            return number
        if plain is str and isinstance(value, Path):
            return str(value)
        if plain is dict and isinstance(value, dict) and (odd := [key for key in value if not isinstance(key, str)]):
            raise ValueError(f"{where} has the key {_shown(odd[0])}, expected names, such as temperature")
        if plain is list and isinstance(value, list | tuple):
            return [_fitting(each, inside[0], where) for each in value]
        if isinstance(plain, type) and isinstance(value, plain) and not (plain is int and isinstance(value, bool)):
            return value
    words = " or ".join(_in_words(kind) for kind in kinds)
    raise ValueError(f"{where} is {_shown(value)}, expected {words}")


class _Plain(yaml.SafeLoader):  # type: ignore[misc]
    """YAML of plain values: ten lines of aliases can stand for a billion values, and brackets be nested without end."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        fault = "aliases (*name) have no place in a configuration" if self.check_event(yaml.AliasEvent) else ""
        fault = "it is nested too deeply" if self.depth > 32 else fault
        if fault:
            raise yaml.composer.ComposerError(None, None, fault, self.peek_event().start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if again := next((key for place, key in enumerate(keys) if key in keys[:place]), None):
            fault = f"the key {_shown(again)} is there twice"
            raise yaml.constructor.ConstructorError(None, None, fault, node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Mapping[Any, Any]:
    """Keys and values of a file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if path.stat().st_size > _LARGEST_YAML:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes, expected a configuration of at most 1 MB")
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Plain)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: of a date or a number that is none
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected keys and values")
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _in_words(kind: Any) -> str:
    known = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", NoneType: "nothing"}
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return known.get(kind) or ("a list" if get_origin(kind) is list else "keys and values")


def _is_config(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def nearest(name: str, known: set[str]) -> str:
    """A hint at the known name that was meant."""
    close = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
