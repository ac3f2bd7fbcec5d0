"""`nearfar.evaluate`: an encoder and data, by object or by name, to numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from nearfar.config import TrainConfig
from nearfar.data.config import EvaluationData, ReadConfig
from nearfar.data.downloads import named_by_run
from nearfar.data.python_data import ObjectData, as_data
from nearfar.data.python_parts import named_parts
from nearfar.devices import find_device
from nearfar.evaluation.detection.splits import open_boxed_splits
from nearfar.evaluation.evaluate_run import as_embedder, evaluate_run
from nearfar.evaluation.leakage import training_notes
from nearfar.evaluation.measure import Finished
from nearfar.evaluation.own_split import own_splits
from nearfar.evaluation.protocols import PROTOCOLS, ProtocolConfig, find_protocol, protocol_config
from nearfar.evaluation.requirements import check_protocols
from nearfar.evaluation.results import Results
from nearfar.evaluation.splits import named, read_record
from nearfar.evaluation.task import Compute
from nearfar.messages import nearest_or_all, shown
from nearfar.modalities.base import Splits
from nearfar.modalities.image.data.boxes import find_boxes
from nearfar.model.card import config_of, is_of_run, start_of
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.progress import print_note
from nearfar.python_objects import released_afterwards
from nearfar.settings import as_section, build
from nearfar.weights.names import LIBRARIES, parse_name

DEFAULT_PROTOCOLS = ("knn", "linear")
Data = Any  # a name or path, keys of `EvaluationData`, or an object as `nearfar.train` takes it


def evaluate(
    encoder: Encoder | str | Path,
    data: Data = None,
    *,
    test: Any = None,
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    **options: Any,
) -> Results:
    """Measure an encoder on labelled data, beside its untrained self and the raw samples. Writes nothing.

    Args:
        encoder: an `Encoder`, a run or export folder, or a name that `nearfar.load` takes.
        data: a name or path, an object as `nearfar.train` takes it, or keys as in `EvaluationData`:
            {"path": "pairs.csv", "label_column": "kind"}. Their own
            test part is measured on, else a fifth of each class, held out by the first seed. No path: the run's own
            data, read as in the run but for these keys; its test part, or its validation part if it has none.
        test: other data for the test part.
        protocols: names of protocols, or MODULE:NAME; ["all"]: all that suit any encoder of such data.
        options: further parameters of `Evaluation`: against, settings, seeds, image_size, dim, compute.

    Raises:
        TypeError: for a keyword that is none of these.

    >>> results = nearfar.evaluate("runs/photos", "labelled/", protocols=["knn"])  # doctest: +SKIP
    >>> results.value("trained", "knn")  # doctest: +SKIP
    0.93
    """
    known = set(signature(Evaluation).parameters)
    if unknown := next((name for name in options if name not in known), None):
        raise TypeError(f"evaluate has no parameter {unknown!r}{nearest_or_all(unknown, known)}")
    with released_afterwards(ObjectData):
        return Evaluation(encoder, data, test=test, protocols=protocols, **options).run()


class Evaluation:
    """Encoders, data and protocols, opened and checked, ready to be measured.

    Args:
        encoder, data, test, protocols: as in `evaluate`.
        against: further encoders to compare with, of images.
        settings: of the protocols, such as `ProtocolConfig(bootstrap=1000)` or {"knn": {"k": [10]}}; of a protocol from
            outside, too, by its name.
        seeds: for the protocols that depend on one; a number counts from the run's own seed, or from 0 on other data.
        image_size: pixels of the input of encoders of other libraries.
        dim: numbers of an embedding to keep, the first; None: all.
        compute: batch size, device and progress.

    Attributes:
        encoders: by their name in the result rows.
        splits: training and test samples.
        data: name of the data in the result rows.
    """

    def __init__(
        self,
        encoder: Encoder | str | Path,
        data: Data = None,
        *,
        test: Any = None,
        protocols: Sequence[str] = DEFAULT_PROTOCOLS,
        against: Sequence[str | Path] = (),
        settings: ProtocolConfig | Mapping[str, Any] | None = None,
        seeds: int | Sequence[int] = 1,
        image_size: int | None = None,
        dim: int | None = None,
        compute: Compute | None = None,
    ) -> None:
        if image_size is not None and (not isinstance(image_size, int) or image_size < 1):
            raise ValueError(f"image_size is {image_size!r}, expected a whole number of at least 1")
        protocols = [protocols] if isinstance(protocols, str) else protocols
        self.compute = compute or Compute()
        section = _without_objects(data)
        read: EvaluationData = build(EvaluationData, as_section(EvaluationData, section), "data")
        path, test = read.path, read.test if test is None else as_data(test).path
        self.protocols, boxed = _chosen(protocols, path)
        _seeds(seeds, 0)  # refused before anything is loaded
        keys = protocol_config(self.protocols)
        given = build(keys, settings, "settings") if isinstance(settings, Mapping) else settings
        self.settings: ProtocolConfig = given or keys()
        names = _names(encoder, against)
        self.encoders = _load(names, self.compute, image_size)
        if dim is not None:
            self.encoders = {name: each.first(dim) for name, each in self.encoders.items()}
        first = next(iter(self.encoders.values()))
        config = _run_config(first)
        self.seeds = _seeds(seeds, config.seed if config is not None and path is None else 0)
        self.data, self.splits = (
            self._open_boxed(str(path), test) if boxed else _open(self.encoders, path, test, read, self.seeds[0])
        )
        if not boxed:
            embedders = [as_embedder(name, each) for name, each in self.encoders.items()]
            assert self.splits.evaluated is not None
            check_protocols(self.protocols, embedders, self.splits.gallery, self.splits.evaluated[0], self.data)
        self.untrained = _untrained(encoder, first, image_size)
        if self.untrained is not None and self.untrained.num_features > first.num_features:
            self.untrained = self.untrained.first(first.num_features)
        self.origins = {name: str(origin) for name, origin in names.items() if not isinstance(origin, Encoder)}

    def _open_boxed(self, data: str, test: str | None) -> tuple[str, Splits]:
        size, progress = self.settings.detection.size, self.compute.progress
        return named(data, test), open_boxed_splits(data, test, size=size, seed=self.seeds[0], progress=progress)

    def run(self, finished: Finished | None = None) -> Results:
        """Measure.

        Args:
            finished: told after each protocol of each encoder, with all that was found so far.
        """
        return evaluate_run(
            self.encoders,
            self.splits,
            self.protocols,
            self.settings,
            data=self.data,
            untrained=self.untrained,
            seeds=self.seeds,
            origins=self.origins,
            compute=self.compute,
            finished=finished,
        )


def _chosen(protocols: Sequence[str], data: str | None) -> tuple[list[str], bool]:
    """The protocols, and whether they are measured on boxes."""
    if not protocols or not all(isinstance(name, str) for name in protocols):
        raise ValueError(f"protocols is {shown(protocols)}, expected at least one name, such as ['knn', 'linear']")
    if list(protocols) == ["all"]:
        boxed = data is not None and bool(find_boxes(data))
        fitting = [name for name, each in PROTOCOLS.items() if each.general and (each.needs == "boxes") == boxed]
        return fitting, boxed
    boxes = {name: find_protocol(name).needs == "boxes" for name in protocols}
    if not any(boxes.values()):
        return list(protocols), False
    first = next(name for name, needed in boxes.items() if needed)
    if other := next((name for name, needed in boxes.items() if not needed), None):
        raise ValueError(
            f"{first} is measured on boxes and {other} is not: run two commands; "
            "the results of both stay in the same file"
        )
    if data is None:
        raise ValueError(f"{first} needs data with boxes: give --data, such as glyph-scenes or a VOC folder")
    return list(protocols), True


def _names(encoder: Encoder | str | Path, against: Sequence[str | Path]) -> dict[str, Encoder | str | Path]:
    """Each encoder's name in the results: "trained" for a run or an object, else as it is called."""
    given: list[object] = [encoder, *against]
    for each in given:
        if not isinstance(each, Encoder | str | Path):
            expected = "an Encoder, a run folder, or a name such as timm:resnet18"
            raise TypeError(f"encoder is {shown(each)}, expected {expected}")
    own = isinstance(encoder, Encoder) or _is_run(encoder)
    names = {"trained" if own else _called(str(encoder)): encoder}
    for other in against:
        name = _called(str(other))
        if name in names or name in ("trained", "untrained", "random", "raw", "prepared", "MFCC", "colour histogram"):
            raise ValueError(f"two encoders would be called {name!r}; rename the folder or file of one")
        names[name] = other
    return names


def _load(names: Mapping[str, Encoder | str | Path], compute: Compute, image_size: int | None) -> dict[str, Encoder]:
    """The encoders, on the device of the first one, or that of `compute`."""
    given = next(iter(names.values()))
    device = compute.device or (given.device if isinstance(given, Encoder) else find_device("auto"))
    encoders = {
        name: each if isinstance(each, Encoder) else load(each, device=device, image_size=image_size)
        for name, each in names.items()
    }
    if len(encoders) > 1 and any("image" not in each.modality.queries for each in encoders.values()):
        noun = next(iter(encoders.values())).modality.noun
        raise ValueError(f"--against is for encoders of images; evaluate each encoder of {noun} separately")
    return encoders


def _without_objects(data: Any) -> Any:
    """The same data, objects replaced by the names that they are registered or written under."""
    if data is None or isinstance(data, EvaluationData | str | Path):
        return data
    section = named_parts(data) if isinstance(data, Mapping) else {"path": data}
    return {
        key: as_data(value).path if key in ("path", "test") and value is not None else value
        for key, value in section.items()
    }


def _is_run(encoder: str | Path) -> bool:
    return not str(encoder).endswith(".onnx") and parse_name(encoder, hub=True).kind in ("folder", "hub")


def _called(spec: str) -> str:
    """A short name that says where an encoder is from."""
    kind, colon, rest = spec.partition(":")
    if not colon or kind not in LIBRARIES:
        return Path(spec).expanduser().resolve().name
    name, equals, file = rest.partition("=")
    here = Path(name).expanduser()
    name = here.resolve().name if here.is_dir() else name
    return f"{kind}:{name}" + (equals + Path(file).name if kind in ("timm", "torchvision") else "")


def _run_config(encoder: Encoder) -> TrainConfig | None:
    """Of the run that trained it; None for encoders of other libraries."""
    return config_of(encoder.card, "card") if is_of_run(encoder.card) else None


def _seeds(seeds: int | Sequence[int], first: int) -> list[int]:
    found = list(range(first, first + seeds)) if isinstance(seeds, int) else list(seeds)
    if not found or not all(isinstance(seed, int) for seed in found):
        raise ValueError(f"seeds is {seeds!r}, expected how many (at least 1), or whole numbers, such as [0, 1, 2]")
    if min(found) < 0:
        raise ValueError(f"seed is {min(found)}, expected at least 0")
    return found


def _untrained(encoder: Encoder | str | Path, loaded: Encoder, image_size: int | None) -> Encoder | None:
    """The encoder before it learned anything, or as its run began; None if that cannot be made again."""
    if str(encoder).endswith(".onnx"):
        return None
    config = _run_config(loaded)
    start = None if config is None else start_of(config)
    try:
        if not isinstance(encoder, Encoder):
            return load(encoder, device=loaded.device, image_size=image_size, untrained=True)
        if config is None:
            return None
        torch.manual_seed(config.seed)
        network = loaded.modality.trained_encoder(untrained=start is None)
        return Encoder(network, loaded.modality, {**loaded.card, "start": start}).to(loaded.device).eval()
    except (OSError, ValueError, ImportError) as error:
        if start is None:
            raise
        print_note(f"no comparison with the start of this run: {error}")
        return None


def _open(
    encoders: Mapping[str, Encoder], data: str | None, test: str | None, read: ReadConfig, seed: int
) -> tuple[str, Splits]:
    """The name of the data and their parts, with notes on what each encoder was trained on."""
    name, first = next(iter(encoders.items()))
    config, reader = _run_config(first), first.modality.fitted_copy()
    # Encoders of images may take other sizes: files are decoded as for the one with the largest.
    largest = max((each.modality for each in encoders.values()), key=lambda modality: modality.config.image_size)
    reader.config = replace(reader.config, image_size=largest.config.image_size)
    given = {f.name: vars(read)[f.name] for f in fields(ReadConfig) if vars(read)[f.name] != f.default}
    shown = data or (config.data.path if config is not None else "")
    if given.get("pattern") or given.get("label_column"):  # other labels are other numbers
        shown += f" by {given.get('pattern') or 'column ' + given['label_column']}"
    if data is not None:
        splits = reader.reading(replace(largest.read_config_of_others(data), **given)).split(data, test, seed=seed)
        splits.notes.extend(_trained_on(encoders, splits, data, test, read))
        return named(shown, test), splits
    if config is None:
        raise ValueError(f"{name} comes without data; give --data, such as a folder with a sub-folder per class")
    other = {key: value for key, value in given.items() if value != vars(config.data)[key]}
    tests_on = config.data.test if test is None else None
    with named_by_run(first.folder, reader.suffixes, config.data.path, tests_on):  # it may be anyone's
        splits = own_splits(reader, config, read_record(first.folder, first.card), other, test)
    if splits.evaluated is None:
        raise ValueError(
            f"nothing was held out of {config.data.path} in this run; give other data with --data, or data to test on "
            "with --test"
        )
    tested = test or (config.data.test if splits.test is not None else None)
    as_run = None if test is not None or "held_out" in other else name
    reading = replace(config.data, **other)
    splits.notes.extend(_trained_on(encoders, splits, config.data.path, tested, reading, as_run))
    return named(shown, tested), splits


def _trained_on(
    encoders: Mapping[str, Encoder],
    splits: Splits,
    data: str,
    test: str | None,
    reading: ReadConfig,
    as_run: str | None = None,
) -> list[str]:
    """What each encoder was trained on of the test part.

    Args:
        as_run: the encoder whose own test part it is.
    """
    assert splits.evaluated is not None
    part, notes = splits.evaluated, []
    for name, encoder in encoders.items():
        if (config := _run_config(encoder)) is None:
            continue
        ids = read_record(encoder.folder, encoder.card).ids
        found = training_notes(
            config,
            None if name == as_run else data,
            None if name == as_run else test,
            part[1],
            reading=reading,
            noun=encoder.modality.noun,
            tested=part[0],
            trained=None if ids is None else ids["train"],
        )
        notes += found if len(encoders) == 1 else [f"{name}: {note}" for note in found]
    return notes
