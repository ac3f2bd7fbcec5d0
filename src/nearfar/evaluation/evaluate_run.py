"""The evaluation of an encoder by name, ours or foreign, into a folder: what `nearfar evaluate` does."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from nearfar.config import ProtocolConfig, ReadConfig, TrainConfig, build
from nearfar.data.dataset import Dataset
from nearfar.evaluation.baselines import calibrated
from nearfar.evaluation.embedding import Encoder as AnyEncoder
from nearfar.evaluation.embedding import Prepare
from nearfar.evaluation.evaluate_samples import assess_samples
from nearfar.evaluation.evaluate_texts import assess_texts
from nearfar.evaluation.leakage import seen_before
from nearfar.evaluation.protocols import PROTOCOLS
from nearfar.evaluation.results import Results
from nearfar.evaluation.results_io import earlier, keep, results_folder, show
from nearfar.evaluation.runner import evaluate
from nearfar.evaluation.splits import BoxedParts, Parts, named, open_boxed_parts, open_parts
from nearfar.evaluation.validation import check_suitable
from nearfar.modalities.image.data.boxes import find_boxes
from nearfar.modalities.image.data.opening import decoding_size
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.card import read_card
from nearfar.model.encoder import CARD, load
from nearfar.model.foreign.towers import PREFIXES
from nearfar.model.open import open_encoder, untrained
from nearfar.report.samples import Pictures, image_pictures
from nearfar.training.report_samples import look, looked_at
from nearfar.training.run import find_device


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
        unless they were measured anew, curves under `evaluation/`, and for a run its report. Numbers are written as
        soon as they are measured: what stops the evaluation does not cost them.
    """
    for what, number in (("image_size", image_size), ("batch_size", batch_size), ("seeds", seeds)):
        if number is not None and number < 1:
            raise ValueError(f"{what} is {number}, expected at least 1")
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected at least 0")
    console = console or Console()
    settings = settings or ProtocolConfig()
    protocols, boxed = _chosen(protocols, data)
    folder = results_folder(spec, out)
    where = find_device(device)
    if (kind := _kind(spec)) in _OF_OTHERS:
        if against:
            raise ValueError(f"--against is for encoders of images; evaluate each encoder of {kind} by itself")
        with _Watch(folder, console) as watch:
            results = _OF_OTHERS[kind](
                load(Path(spec).expanduser()).to(where),
                spec,
                data=data,
                test=test,
                protocols=protocols,
                seed=seed,
                seeds=seeds,
                settings=settings,
                sources=sources,
                batch_size=batch_size,
                console=console,
                finished=watch.finished,
                seen=watch.seen,
            )
            watch.end(results)
        return results, folder
    specs = _names(spec, against)
    encoders = {name: open_encoder(each, size=image_size, device=where) for name, each in specs.items()}
    first = next(iter(encoders.values()))
    sources = sources or ReadConfig()
    size = max(encoder.preparation.size for encoder in encoders.values())
    parts: Parts | BoxedParts
    if boxed:
        assert data is not None
        name = named(data, test)
        parts = open_boxed_parts(data, test, size=settings.detection.size, seed=seed, progress=console.is_terminal)
    else:
        name, parts = _open(spec, data, test, sources, size, seed)
        check_suitable(protocols, encoders.values(), parts.train, parts.test, name)
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
    with _Watch(folder, console) as watch:
        results = evaluate(
            everyone,
            parts.train,
            parts.test,
            prepare=prepares,
            raw=None if first.preparation.plain else Preparation(first.preparation.size),
            protocols=protocols,
            seed=seed,
            seeds=seeds,
            settings=settings,
            data=name,
            split=parts.split,
            batch_size=batch_size,
            device=where,
            progress=console.is_terminal,
            known=parts.notes,
            origins={"untrained": f"{spec}, as it was first drawn"} | specs,
            finished=watch.finished,
        )
        if results.rows and not isinstance(parts, BoxedParts) and "trained" in encoders:
            watch.seen(encoders["trained"], parts.test, prepares["trained"], image_pictures, name, parts.split)
        watch.end(results)
    return results, folder


# What is measured beside other things than pixels, by the modality of its card.
_OF_OTHERS: dict[str, Callable[..., Results]] = {
    "series": assess_samples,
    "sound": assess_samples,
    "text": assess_texts,
}


class _Watch:
    """Keeps what is finished, also where the rest fails, and gives a sign of life where no progress bar can be seen.

    Where nothing is finished nothing is written.
    """

    def __init__(self, folder: Path, console: Console) -> None:
        self.fresh = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.console = folder, console
        self.last: Results | None = None
        self.start = time.perf_counter()
        earlier(folder, self.tell)  # before the work: a broken file must not cost it

    def __enter__(self) -> "_Watch":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None and self.last is not None:
            self.tell(f"stopped; what was measured before is in {self.folder}")
            show(self.last, self.folder)
        elif kind is not None and self.fresh:
            with suppress(OSError):  # something is in it
                self.folder.rmdir()

    def end(self, results: Results) -> None:
        """Keep all of it, and write the figures and the report."""
        if not results.rows:
            raise ValueError("nothing was measured: " + "; ".join(results.notes))
        keep(results, self.folder, self.tell)
        show(results, self.folder)

    def finished(self, what: str, results: Results) -> None:
        if not results.rows:
            return
        self.last = results
        keep(results, self.folder, self.tell)
        if not self.console.is_terminal:
            self.tell(f"{what}: done after {time.perf_counter() - self.start:.0f} s")

    def seen(
        self, encoder: AnyEncoder, test: Dataset, prepare: Prepare, pictures: Pictures, data: str, split: str
    ) -> None:
        """Let the report of a run show single samples of what it was evaluated on."""
        if not (self.folder / CARD).exists() or looked_at(self.folder, data, split):
            return
        problem = look(
            self.folder,
            encoder,
            test,
            prepare=prepare,
            pictures=pictures,
            data=data,
            split=split,
            seed=0,
            ids=test.groups,
        )
        if problem is not None:
            self.tell(problem)

    def tell(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)


def _kind(spec: str) -> str:
    """The kind of data that a run was trained on; of anything else images."""
    card = Path(spec).expanduser() / CARD
    return str(read_card(card).get("modality", "image")) if card.is_file() else "image"


def _chosen(protocols: Sequence[str], data: str | None) -> tuple[list[str], bool]:
    """The protocols, and whether they are measured on boxes."""
    if list(protocols) == ["all"]:
        boxed = data is not None and bool(find_boxes(data))
        return [
            name
            for name, measure in PROTOCOLS.items()
            if (measure.needs == "boxes") == boxed
            and not (measure.reads or measure.raw or measure.frames)
            and measure.needs != "words"
        ], boxed
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
        name, equals, weights = spec.partition("=")
        return name + equals + Path(weights).name  # other weights than the published ones are told apart
    if spec.startswith(PREFIXES):
        kind, _, what = spec.partition(":")
        return f"{kind}:{Path(what.partition('=')[0]).expanduser().resolve().name}"
    return Path(spec).expanduser().resolve().name


def _open(
    spec: str, data: str | None, test: str | None, sources: ReadConfig, size: int, seed: int
) -> tuple[str, Parts]:
    """The data's name and parts, with a word on what the encoder has seen of them."""
    card = Path(spec).expanduser() / CARD
    config: TrainConfig | None = build(TrainConfig, read_card(card)["config"], CARD) if card.is_file() else None
    if data is None:
        if config is None:
            raise ValueError(f"{spec} says nothing of data; give --data, such as a folder with a sub-folder per class")
        data, test = config.data, test or config.sources.test
        if sources == ReadConfig():
            sources = config.sources
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
    if config is not None:
        parts.notes.extend(seen_before(config, data, test, parts.split))
    return named(data, test), parts
