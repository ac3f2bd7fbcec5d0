"""The evaluation of an encoder by name, ours or foreign, into a folder: what `nearfar evaluate` does."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from nearfar.config import DataConfig, ProtocolConfig, ReadConfig, build
from nearfar.data import decoding_size
from nearfar.data.boxes import find_boxes
from nearfar.evaluate import PROTOCOLS, Results, calibrated, evaluate
from nearfar.evaluate.embeddings import Encoder as AnyEncoder
from nearfar.evaluate.embeddings import Prepare
from nearfar.evaluate.parts import BoxedParts, Parts, open_boxed_parts, open_parts
from nearfar.evaluate.results import file_name
from nearfar.export.model import CARD
from nearfar.report import write_report
from nearfar.report.figures import draw_curves
from nearfar.train.encoders import open_encoder, untrained
from nearfar.train.run import SUPERVISED, find_device
from nearfar.views import Preparation

RESULTS, FIGURES = "evaluation.json", "evaluation"


def assess(
    spec: str,
    *,
    data: str | None = None,
    test: str | None = None,
    protocols: Sequence[str] = ("knn", "linear"),
    against: Sequence[str] = (),
    seed: int = 0,
    seeds: int = 1,
    settings: ProtocolConfig | None = None,
    sources: ReadConfig | None = None,
    image_size: int | None = None,
    batch_size: int = 256,
    device: str = "auto",
    out: Path | None = None,
    console: Console | None = None,
) -> tuple[Results, Path]:
    """Evaluate an encoder beside raw pixels, its untrained self and any others, and write what was found.

    Args:
        spec: as `open_encoder` takes it.
        data, test: as `open_parts` takes them, or for detection `open_boxed_parts`; a run's own where None.
        protocols: of `PROTOCOLS`; ("all",) are those that the data allow.
        against: further encoders to compare with.
        seed, seeds: see `evaluate`.
        settings: of the protocols.
        sources: columns of a table, and how to read files.
        image_size: pixels of foreign encoders' input.
        batch_size: images at a time.
        device: "auto", "cpu", "cuda", ...
        out: the folder; the run's own where None, or one under `evaluations/` for a foreign encoder.
        console: where to speak.

    Returns:
        What was found now, and the folder that holds it: `evaluation.json`, where rows of earlier evaluations stay
        unless they were measured anew, curves under `evaluation/`, and for a run its report.
    """
    console = console or Console()
    settings = settings or ProtocolConfig()
    protocols, boxed = _chosen(protocols, data)
    where = find_device(device)
    encoders = {name: open_encoder(each, size=image_size, device=where) for name, each in _names(spec, against).items()}
    first = next(iter(encoders.values()))
    sources = sources or ReadConfig()
    size = max(encoder.preparation.size for encoder in encoders.values())
    parts: Parts | BoxedParts
    if boxed:
        assert data is not None
        parts = open_boxed_parts(data, test, size=settings.detection.size, seed=seed, progress=console.is_terminal)
    else:
        data, parts = _open(spec, data, test, sources, size, seed)
    prepares: dict[str, Prepare] = {
        name: encoder.preparation.whole if boxed else encoder.prepare for name, encoder in encoders.items()
    }
    everyone: dict[str, AnyEncoder] = dict(encoders)
    fresh = untrained(spec, size=image_size, device=where)
    if fresh is not None and boxed and not settings.detection.frozen:
        everyone["untrained"] = fresh  # its statistics are learned with the detector
    elif fresh is not None:
        at_once = settings.detection.batch_size if boxed else 256
        everyone["untrained"] = calibrated(fresh, parts.train, next(iter(prepares.values())), batch_size=at_once)
    found = evaluate(
        everyone,
        parts.train,
        parts.test,
        prepare=prepares,
        raw=None if first.preparation.plain else Preparation(first.preparation.size),
        protocols=protocols,
        seed=seed,
        seeds=seeds,
        settings=settings,
        data=data,
        split=parts.split,
        batch_size=batch_size,
        device=where,
        progress=console.is_terminal,
    )
    results = replace(found, notes=[*parts.notes, *found.notes])
    return results, _write(results, spec, out)


def _chosen(protocols: Sequence[str], data: str | None) -> tuple[list[str], bool]:
    """The protocols, and whether they are measured on boxes."""
    if list(protocols) == ["all"]:
        boxed = data is not None and bool(find_boxes(data))
        return [name for name, measure in PROTOCOLS.items() if (measure.needs == "boxes") == boxed], boxed
    unknown = [protocol for protocol in protocols if protocol not in PROTOCOLS]
    if unknown:
        raise ValueError(f"there is no protocol {unknown[0]!r}; known are {', '.join(PROTOCOLS)}")
    boxed_ones = [protocol for protocol in protocols if PROTOCOLS[protocol].needs == "boxes"]
    if not boxed_ones:
        return list(protocols), False
    if others := [protocol for protocol in protocols if protocol not in boxed_ones]:
        raise ValueError(
            f"{boxed_ones[0]} is measured on boxes and {others[0]} is not: give two commands; "
            "the results of both stay in the same file"
        )
    if data is None:
        raise ValueError(f"{boxed_ones[0]} needs data with boxes: give --data, such as glyph-scenes or a VOC folder")
    return boxed_ones, True


def _write(results: Results, spec: str, out: Path | None) -> Path:
    run = Path(spec).expanduser()
    folder = out or (run if run.is_dir() else Path("evaluations") / file_name(spec.removesuffix(".onnx")))
    earlier = Results.load(folder / RESULTS) if (folder / RESULTS).exists() else Results()
    results.after(earlier).save(folder / RESULTS)
    results.save_curves(folder / FIGURES)
    draw_curves(results, folder / FIGURES)
    if (folder / CARD).exists():
        write_report(folder)
    return folder


def _names(spec: str, against: Sequence[str]) -> dict[str, str]:
    """Each encoder's name in the results: "trained" for the run in question, else as it was called."""
    names = {"trained" if Path(spec).expanduser().is_dir() else _called(spec): spec}
    for other in against:
        name = _called(other)
        if name in names or name in ("trained", "untrained", "raw"):
            raise ValueError(f"two encoders would be called {name!r}; rename the folder or file of one")
        names[name] = other
    return names


def _called(spec: str) -> str:
    if spec.startswith(("timm:", "torchvision:")):
        return spec.partition("=")[0]
    return Path(spec).expanduser().resolve().name


def _open(
    spec: str, data: str | None, test: str | None, sources: ReadConfig, size: int, seed: int
) -> tuple[str, Parts]:
    """The data's name and parts, with a word on what the encoder has seen of them."""
    card = Path(spec).expanduser() / CARD
    config = json.loads(card.read_text(encoding="utf-8"))["config"] if card.is_file() else None
    if data is None:
        if config is None:
            raise ValueError(f"{spec} says nothing of data; give --data, such as a folder with a sub-folder per class")
        data, test = config["data"], test or config["sources"]["test"]
        if sources == ReadConfig():
            sources = build(DataConfig, config["sources"], CARD)
    parts = open_parts(
        data,
        test,
        size=sources.size or decoding_size(size),
        seed=seed,
        path_column=sources.path_column,
        label_column=sources.label_column,
        stream=sources.stream,
        strict=sources.strict,
    )
    if config is not None and config["data"] == data and parts.split == "held-out":
        how = "with" if config["method"] in SUPERVISED else "without"
        parts.notes.append(f"the encoder was trained on these images, {how} their labels")
    return str(data), parts
