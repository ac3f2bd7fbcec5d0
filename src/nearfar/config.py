"""What a run is a function of: frozen dataclasses, as YAML in the run folder and as flags of the command."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from nearfar.data.class_folders import ClassFolders
from nearfar.data.config import LARGEST_SIDE, DataConfig
from nearfar.modalities.config import ViewsConfig
from nearfar.modalities.series.config import SeriesConfig
from nearfar.modalities.sound.config import SoundConfig
from nearfar.modalities.table.config import TableConfig
from nearfar.modalities.text.config import TextConfig
from nearfar.python_objects import is_object
from nearfar.settings import (
    as_section,
    build,
    check_settings,
    checked_values,
    overlaid,
    sections,
    setting,
    with_sections,
)
from nearfar.training.config import AdaptConfig, OptimizerConfig
from nearfar.yaml_reader import read_yaml

if TYPE_CHECKING:
    from nearfar.methods import Method
    from nearfar.modalities.base import Modality

NO_WEIGHTS = "none"  # what a user says for weights drawn at random, also where automatic settings would start elsewhere


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
    owners = [name for name, kind in kinds.items() if kind.owns_name(data)]  # of sounds, those with captions, too
    named = next((name for name in owners if name in served), owners[0] if owners else None)
    fitting = (name for name, kind in kinds.items() if name in served and data.lower().endswith(kind.endings))
    return named or next(fitting, served[0])


def seconds_in(time: str) -> float:
    """The seconds that a length of time stands for.

    >>> seconds_in("90s"), seconds_in("1.5h"), seconds_in("20 min"), seconds_in("45")
    (90.0, 5400.0, 1200.0, 45.0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|hours?|d|days?)?\s*", time.lower())
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"time is {time!r}, expected a length of time, such as 90s, 20m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[(found[2] or "s")[0]]


@dataclass(frozen=True)
class TrainConfig:
    """One pretraining run. A section with a main key may be given as that key's value: TrainConfig(data="photos/")."""

    data: DataConfig = setting(DataConfig, "training data and how they are read; as a plain value, their path")
    method: str = setting("simclr", "simclr, moco, byol, ...; an unknown name lists them all; MODULE:NAME is your own")
    recipe: Literal["default", "paper"] = setting(
        "default", "paper: options, views and optimizer of the method's authors"
    )
    backbone: str = setting("tiny", "encoder: built-in, a timm name, torchvision:NAME or transformers:NAME")
    pretrained: bool = setting(False, "start from the backbone's published weights; needs a network once")
    weights: str | None = setting(
        None, "start: a run, timm:NAME, torchvision:NAME, hf:NAME, package:NAME, or a file in any usual layout"
    )
    image_size: int = setting(32, "side of the views in pixels", least=1, most=LARGEST_SIDE)
    epochs: int = setting(20, "passes over the training data", least=1)
    steps: int | None = setting(None, "optimizer steps, in place of epochs", least=1)
    time: str | None = setting(None, "training time, such as 90s, 20m or 2h, in place of epochs: the steps that fit")
    batch_size: int = setting(256, "samples of one batch, over all processes", least=2)
    micro_batch_size: int | None = setting(
        None, "samples encoded at a time, with the gradient of the whole batch; None: all at once", least=2
    )
    tile_size: int | None = setting(
        None, "side of the similarity tiles held in memory at a time; None: what fits the cache", least=1
    )
    seed: int = setting(0, "random seed of weights, sample order and views", least=0, below=1 << 63)
    device: str = setting("auto", "auto, cpu, cuda, cuda:1 or mps")
    precision: Literal["32", "bf16", "fp16"] = setting("32", "number format of the forward pass")
    accumulate_batches: int = setting(1, "batches whose gradients make one optimizer step", least=1)
    processes: int = setting(1, "processes on each machine, one per GPU; they share the batch", least=1)
    nodes: int = setting(1, "machines", least=1)
    strategy: Literal["ddp", "fsdp"] = setting("ddp", "ddp: each process has all weights; fsdp: a shard of them")
    gather: Literal["gather", "ring"] = setting(
        "gather", "gather: each process has all keys; ring: keys travel from process to process, in linear memory"
    )
    channels_last: bool = setting(True, "memory layout of images: faster for most convolutions")
    views: ViewsConfig = setting(ViewsConfig, "augmented views of each sample; as a plain value, the preset")
    options: dict[str, Any] = setting({}, "the method's hyperparameters, such as temperature")
    embedding: Literal["auto", "plain", "centered", "standardized", "whitened"] = setting(
        "auto",
        "features of the trained network as they are, or transformed without labels; auto: what finds views best",
    )
    health_every: int = setting(100, "steps between health checks", least=1)
    checkpoint_every: int = setting(
        500, "steps between checkpoints; there is also one at the end of each epoch", least=1
    )
    tensorboard: bool = setting(False, "also write TensorBoard event files; the same as --logger tensorboard")
    logger: str | None = setting(
        None, "where metrics also go: tensorboard, wandb, mlflow, trackio, or several: wandb,tensorboard"
    )
    modality: str | None = setting(
        None, "image, image-text, series, sound, sound-text, table, text or MODULE:NAME; None: what data and method say"
    )
    optimizer: OptimizerConfig = setting(OptimizerConfig, "optimizer and schedule; as a plain value, its name")
    adapt: AdaptConfig = setting(AdaptConfig, "how pretrained weights are adapted; no effect without them")
    notes: list[str] = setting([], "what was chosen automatically, and why; written by the run")
    text: TextConfig = setting(TextConfig, "how texts become tokens and features")
    series: SeriesConfig = setting(SeriesConfig, "how series are normalized")
    sound: SoundConfig = setting(SoundConfig, "how sounds are cut and become spectrograms")
    table: TableConfig = setting(TableConfig, "how columns of tables are scaled and varied")

    @property
    def kind(self) -> str:
        """The modality: what was asked for, else what the method is for, else what the data look like."""
        return kind_of(self.data.path, self.method, self.modality)

    def __post_init__(self) -> None:
        for name, kind in sections(TrainConfig).items():
            if not isinstance(value := getattr(self, name), kind):
                object.__setattr__(self, name, build(kind, as_section(kind, value), name))
        check_settings(self)
        if self.batch_size < self.processes * self.nodes:
            raise ValueError(
                f"batch_size is {self.batch_size} for {self.processes * self.nodes} processes, expected at least one "
                "sample for each: it is the number of samples over all processes"
            )
        if self.pretrained and self.weights is not None:
            raise ValueError(f"pretrained is True and weights is {self.weights!r}, expected one of them")
        if self.time is not None:
            seconds_in(self.time)
        micro = self.micro_batch_size
        if micro is not None and self.batch_size // -(-self.batch_size // micro) < 2:
            raise ValueError(
                f"micro_batch_size is {micro} of {self.batch_size} samples, expected parts of at least 2: BatchNorm "
                "needs two samples"
            )

    def to_yaml(self) -> str:
        return str(yaml.safe_dump(asdict(self), sort_keys=False, allow_unicode=True))

    @classmethod
    def from_yaml(cls, path: Path) -> "TrainConfig":
        """The configuration in a file; an unknown key is an error that names the nearest known one."""
        config: TrainConfig = build(cls, read_yaml(path), str(path))
        return config


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, and around it what the modality, built-in data and the method start from.

    A method's options stay away from another method, an optimizer's rate from another optimizer. The recipe "paper"
    replaces options, optimizer and views by the method's `paper_settings`.

    >>> completed({"data": "photos/", "epochs": 3})
    {'data': {'path': 'photos/'}, 'epochs': 3}
    >>> completed({"data": "glyphs:400", "epochs": 3, "optimizer": {"name": "sgd"}})["optimizer"]
    {'name': 'sgd'}
    >>> completed({"data": "lines.txt", "method": "simcse"})["backbone"]
    'text-tiny'
    """
    from nearfar.methods import find_method, known_method
    from nearfar.modalities import MODALITIES, modality_class
    from nearfar.modalities.automatic import Request

    given = checked_values(TrainConfig, {name: value for name, value in given.items() if value is not None}, "train")
    if given.get("weights") == NO_WEIGHTS:
        given = {**given, "weights": None}
    data, method = given.get("data", {}).get("path", DataConfig.path), given.get("method", TrainConfig.method)
    outside = ":" in method
    declared = find_method(method) if outside else known_method(method)
    kind, looked_inside = kind_of(data, method, given.get("modality")), ""
    if given.get("modality") is None and (is_object(data) or Path(data).expanduser().exists()):
        looked = (name for name in MODALITIES if name in declared.modalities and modality_class(name).recognizes(data))
        if (found := next(looked, kind)) != kind:
            kind = found
            looked_inside = "" if is_object(data) else f"modality {kind}: found in {data}; --modality decides otherwise"
            given = {**given, "modality": kind}  # written down: the data may be gone when it is asked next
    modality = modality_class(kind)
    own: dict[str, Any] = {
        # Written down, since the run folder must be readable where the code is not.
        **({"modality": kind, "views": declared.views_of(kind) or None} if outside else {}),
        **modality.defaults(data),
        **declared.settings.get(kind, {}),
    }
    own = with_sections(TrainConfig, own)
    if method != TrainConfig.method:
        own.pop("options", None)
    chosen = None
    if given.get("recipe", TrainConfig.recipe) == "default" and not outside:
        chosen = modality.automatic(Request(given, declared))
        own = overlaid(own, with_sections(TrainConfig, chosen.settings))
    remarks: list[str] = [looked_inside] if looked_inside else []
    if (named := _folder_labels(given, modality)) is not None and isinstance(method, str):
        own = overlaid(own, {"data": {"labels": named.level}})
        remarks.append(f"data.labels {named.level}: {named}; {_use_of_labels(declared, kind)}")
    if given.get("recipe") == "paper":
        backbone = str(given.get("backbone") or own.get("backbone") or TrainConfig.backbone)
        for name in ("options", "optimizer", "views"):
            own.pop(name, None)
        pretrained = bool(given.get("pretrained") or given.get("weights"))
        paper = declared.paper_settings(kind, backbone, pretrained=pretrained)
        own = overlaid(own, with_sections(TrainConfig, paper))
        if not (declared.paper_views or any(value for name, value in paper.items() if name != "views")):
            remarks.append(f"recipe paper: {method} declares no paper settings (`paper` of its class): the defaults")
    if "warmup_ratio" in given.get("optimizer", {}):  # the user's warm-up, not the recipe's in epochs
        own.get("optimizer", {}).pop("warmup_epochs", None)
    if "name" in (rates := given.get("optimizer") or {}) and rates["name"] != own.get("optimizer", {}).get("name"):
        own.pop("optimizer", None)
    merged = {**own, **given}
    modality.complete(given, merged)
    final = overlaid(own, merged)
    if named is not None:
        final["data"] = {**final["data"], "labels": named.level}
    notes = [*remarks, *(chosen.notes(final) if chosen is not None else [])]
    return {**final, "notes": notes} if notes else final


def _folder_labels(given: Mapping[str, Any], modality: "type[Modality]") -> ClassFolders | None:
    """The classes of a folder of folders, where nothing is said of labels."""
    from nearfar.data.sources import is_folder
    from nearfar.modalities.splits import folder_classes

    data = given.get("data", {})
    path = str(data.get("path", ""))
    said = "labels" in data or data.get("pattern") is not None
    if said or not path or is_object(path) or not modality.walks_folders or not is_folder(Path(path).expanduser()):
        return None
    return folder_classes(path, modality.suffixes)


def _use_of_labels(method: "type[Method]", kind: str) -> str:
    """What a run does with labels that nobody mentioned."""
    if method.needs_labels:
        return f"{method.name} learns from them (--data.labels false reads none)"
    trial = ", and by the trial of views, which looks at folders anyway" if kind == "image" else ""
    return (
        f"used to judge the encoder, also beside its start, and to mark its best checkpoint{trial}; for nothing else, "
        "the loss never sees them (--data.labels false reads none)"
    )
