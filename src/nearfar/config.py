"""What a run is a function of: frozen dataclasses, as YAML in the run folder and as flags of the command."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from nearfar.data.config import LARGEST_SIDE, DataConfig
from nearfar.messages import nearest_or_all, shown
from nearfar.modalities.series.config import SeriesConfig
from nearfar.modalities.sound.config import SoundConfig
from nearfar.modalities.text.config import TextConfig
from nearfar.training.config import OptimizerConfig

nearest = nearest_or_all  # for modules that import it from here
_LARGEST_YAML = 1 << 20  # bytes


def kind_of(data: str, method: str, modality: str | None) -> str:
    """The modality: what was asked for, what the data's name says, or what the method is for.

    >>> kind_of("photos/", "moco", None), kind_of("lines.txt", "simclr", None), kind_of("pairs.csv", "clip", None)
    ('image', 'text', 'image-text')
    >>> kind_of("waves", "byol", None), kind_of("ECG200_TRAIN.tsv", "moco", None), kind_of("steps.npz", "cpc", None)
    ('series', 'series', 'series')
    """
    if modality is not None:
        return modality
    from nearfar.methods import known_method  # here, since these import torch
    from nearfar.modalities import MODALITIES, modality_class

    kinds = {name: modality_class(name) for name in MODALITIES}
    served = known_method(method).modalities
    named = next((name for name, kind in kinds.items() if kind.owns_name(data)), None)
    fitting = (name for name, kind in kinds.items() if name in served and data.lower().endswith(kind.endings))
    return named or next(fitting, served[0])


@dataclass(frozen=True)
class TrainConfig:
    """One pretraining run."""

    data: str = "glyphs"  # built-in data, a folder, a table, arrays, or a torchvision data set by name
    method: str = "simclr"  # simclr, moco, byol, ...; a name that is not known lists them all; MODULE:NAME is your own
    recipe: Literal["default", "paper"] = "default"  # paper: options, views and optimizer of the method's authors
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
    modality: str | None = None  # image, image-text, series, sound, text or MODULE:NAME; None: what data and method say
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
        if self.image_size > LARGEST_SIDE:
            raise ValueError(f"image_size is {self.image_size}, expected at most {LARGEST_SIDE:,} pixels")
        if self.batch_size < 2:
            raise ValueError("batch_size is 1, expected at least 2: a batch of one has no negatives")
        self._check_parts()

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


TRANSFORMERS = "transformers:"  # before a folder or a name of the Hugging Face hub


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, and around it what the modality, built-in data and the method start from.

    A method's options stay away from another method, an optimizer's rate from another optimizer. The recipe "paper"
    replaces options, optimizer and views by the method's `paper_settings`.

    >>> completed({"data": "photos/", "epochs": 3})
    {'data': 'photos/', 'epochs': 3}
    >>> completed({"data": "glyphs:400", "epochs": 3, "optimizer": {"name": "sgd"}})["optimizer"]
    {'name': 'sgd'}
    >>> completed({"data": "lines.txt", "method": "simcse"})["backbone"]
    'text-tiny'
    """
    from nearfar.methods import find_method, known_method
    from nearfar.modalities import MODALITIES, modality_class

    data, method = str(given.get("data", TrainConfig.data)), str(given.get("method", TrainConfig.method))
    outside = ":" in method
    declared = find_method(method) if outside else known_method(method)
    kind = kind_of(data, method, given.get("modality"))
    if given.get("modality") is None and Path(data).expanduser().exists():
        looked = (name for name in MODALITIES if name in declared.modalities and modality_class(name).recognizes(data))
        if (found := next(looked, kind)) != kind:
            kind = found
            given = {**given, "modality": kind}  # written down: the data may be gone when it is asked next
    modality = modality_class(kind)
    own: dict[str, Any] = {
        # Written down, since the run folder must be readable where the code is not.
        **({"modality": kind, "views": declared.views_of(kind) or None} if outside else {}),
        **modality.defaults(data),
        **declared.settings.get(kind, {}),
    }
    if method != TrainConfig.method:
        own.pop("options", None)
    if given.get("recipe") == "paper":
        backbone = str(given.get("backbone") or own.get("backbone") or TrainConfig.backbone)
        for name in ("options", "optimizer", "views"):
            own.pop(name, None)
        pretrained = bool(given.get("pretrained") or given.get("weights"))
        own |= declared.paper_settings(kind, backbone, pretrained=pretrained)
    if "name" in (rates := given.get("optimizer") or {}) and rates["name"] != own.get("optimizer", {}).get("name"):
        own.pop("optimizer", None)
    merged = {**own, **{name: value for name, value in given.items() if value is not None}}
    modality.complete(given, merged)
    for name, asked in merged.items():
        if isinstance(asked, Mapping) and isinstance(own.get(name), Mapping):
            merged[name] = {**own[name], **asked}
    return merged


def build(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A configuration dataclass from plain values, refusing keys it does not have."""
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind)}
    given = {}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"{where}: there is no key {shown(key)}{nearest_or_all(str(key)[:80], known)}")
        inner = hints[key]
        if not _is_config(inner):
            given[key] = _fitting(value, inner, f"{where}: {key}")
        elif isinstance(value or {}, Mapping):
            given[key] = build(inner, value or {}, f"{where}: {key}")
        else:
            raise ValueError(f"{where}: {key} is {shown(value)}, expected keys and values")
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
            raise ValueError(f"{where} has the key {shown(odd[0])}, expected names, such as temperature")
        if plain is list and isinstance(value, list | tuple):
            return [_fitting(each, inside[0], where) for each in value]
        if isinstance(plain, type) and isinstance(value, plain) and not (plain is int and isinstance(value, bool)):
            return value
    words = " or ".join(_in_words(kind) for kind in kinds)
    raise ValueError(f"{where} is {shown(value)}, expected {words}")


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
            fault = f"the key {shown(again)} is there twice"
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


def _in_words(kind: Any) -> str:
    known = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", NoneType: "nothing"}
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return known.get(kind) or ("a list" if get_origin(kind) is list else "keys and values")


def _is_config(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)
