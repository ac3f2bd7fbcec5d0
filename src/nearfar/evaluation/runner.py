"""The whole evaluation: every encoder under every protocol, always beside raw input and an untrained encoder."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict

import torch
from rich.console import Console
from rich.markup import escape
from torch import Tensor, nn

from nearfar import __version__
from nearfar.config import ProtocolConfig
from nearfar.evaluation.baselines import raw_pixels, untrained_copy
from nearfar.evaluation.embedding import Encoder, Prepare
from nearfar.evaluation.metrics import over_seeds
from nearfar.evaluation.protocols import PROTOCOLS
from nearfar.evaluation.results import Made, Results, Row, bounds
from nearfar.evaluation.task import Augment, LabelledImages, Measure, Outcome, Part, Task
from nearfar.losses.arguments import check_choice
from nearfar.modalities.image.data.boxes import BoxedImages

_BARS = ("sgd", "finetune", "detection", "ctc")  # show a progress bar of their own


def evaluate(
    encoders: Mapping[str, Encoder],
    train: LabelledImages,
    test: LabelledImages,
    *,
    prepare: Prepare | Mapping[str, Prepare],
    raw: Prepare | None = None,
    augment: Augment | None = None,
    protocols: Sequence[str] = ("knn", "linear"),
    seed: int,
    seeds: int = 1,
    settings: ProtocolConfig | None = None,
    data: str = "data",
    split: str = "test",
    batch_size: int = 256,
    device: torch.device | str | None = None,
    progress: bool = False,
    known: Sequence[str] = (),
    origins: Mapping[str, str] | None = None,
    finished: Callable[[str, Results], None] | None = None,
) -> Results:
    """Measure frozen encoders on held-out data, beside raw pixels and an untrained encoder.

    Args:
        encoders: by name, each (B, ...) to (B, F). "untrained" is made from the first where it is not given
            (`untrained_copy`); "raw" is the prepared pixels.
        train: images whose labels, or boxes, the protocols may use. Data with boxes (`BoxedImages`) are measured by
            the protocols that need boxes, and there is no "raw" beside them.
        test: images on which the number is measured, and that nothing is fitted or chosen on.
        prepare: (B, 3, S, S) uint8 to the encoders' input, without randomness; by name where they differ, and a name
            that is missing has that of the first encoder. For data with boxes it keeps the size of the images.
        raw: the same for the baseline "raw", where `prepare` does more than resize and normalise: what pixels know
            before that. What they know after it is then measured by the name "prepared", by k-NN alone: on pixels the
            linear probe takes longest and finds least.
        augment: how samples that are no images are varied, for protocols that train or look at several views.
        protocols: of `PROTOCOLS`.
        seed, seeds: the first seed and how many, for the protocols that depend on one.
        settings: of the protocols.
        data, split: how the rows name the data.
        batch_size, device: see `embed`.
        progress: show what is done and how long it takes.
        known: notes on the data that come first.
        origins: by name, where encoders come from, for the record.
        finished: called after each protocol of each encoder with their names and all that was found so far, so that
            it can be kept whatever happens next.

    Returns:
        Rows in the order of the encoders; notes on what could not be measured, instead of an error.
    """
    for protocol in protocols:
        check_choice("protocols", protocol, tuple(PROTOCOLS))
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, expected at least 1")
    boxed = isinstance(train, BoxedImages) and isinstance(test, BoxedImages)
    fitting = [protocol for protocol in protocols if (PROTOCOLS[protocol].needs == "boxes") == boxed]
    parts, labelled, notes = _parts(train, test, split, fitting)
    notes[:0] = known
    if lost := ", ".join(protocol for protocol in protocols if protocol not in fitting):
        what = "boxes, and detectors alone are measured on them" if boxed else "no boxes"
        notes.insert(len(known), f"the data have {what}: {lost} could not be measured")
    if parts is None or not fitting:
        return Results([], notes)
    protocols, results = fitting, Results([], notes, {})
    everyone = _with_baselines(encoders, seed, notes, raw=not boxed)
    if raw is not None and not boxed and "raw" not in encoders:
        everyone["prepared"] = raw_pixels
    settings, origins = settings or ProtocolConfig(), origins or {}
    made = {
        protocol: _making(protocol, data, split, range(seed, seed + seeds), settings, len(parts[0]), notes)
        for protocol in protocols
    }
    results.made.extend(made.values())
    for name, encoder in everyone.items():
        task = Task(
            name,
            encoder,
            raw if raw is not None and name == "raw" else _prepare_of(name, prepare, encoders),
            *parts,
            classes=len(train.classes or ()) if boxed else int(parts[0].labels.max()) + 1,
            labelled=labelled,
            settings=settings,
            batch_size=batch_size,
            device=device,
            progress=progress,
            augment=augment,
        )
        features = [] if boxed else [h for h in (task.train_features, task.test_features) if not h.is_sparse]
        broken = sum(int((~h.isfinite().all(1)).sum()) for h in features)
        if broken:
            line = f"{name}: the embeddings of {broken} images are not finite, so nothing was measured on them"
            for told in (notes, *(how.notes for how in made.values())):
                told.append(line)
            continue
        for protocol in protocols if name != "prepared" or raw is None else {"knn"} & set(protocols):
            measure = PROTOCOLS[protocol]
            if measure.labelled and not labelled:
                continue
            if (
                measure.reads
                and not measure.examples
                and name in ("raw", "prepared")
                and not hasattr(encoder, "embed_texts")
            ):
                continue
            if measure.frames and not hasattr(encoder, "frames"):
                continue
            if measure.raw and name != "raw":
                continue
            if protocol not in getattr(encoder, "protocols", protocols):  # it says what it is worth measuring by
                continue
            words = Console().status(escape(f"{name}: {protocol}")) if progress and protocol not in _BARS else None
            with words or nullcontext():
                outcome = _measured(measure, task, made[protocol].seeds)
            _add(results, outcome, name, made[protocol], origins.get(name, ""))
            if finished is not None:
                finished(f"{name}: {protocol}", results)
    return results


def _measured(measure: Measure, task: Task, seeds: Sequence[int]) -> Outcome:
    """The mean over seeds; curves and notes of the first. What the data do not allow becomes a note."""
    outcomes: list[Outcome] = []
    failed: list[str] = []
    for seed in seeds:
        try:
            outcomes.append(measure.run(task, seed))
        except (ValueError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            reason = error if isinstance(error, ValueError) else "there is not memory enough for it"
            failed.append(f"{task.name}: {f'seed {seed}: ' if len(seeds) > 1 else ''}{reason}")
    if not outcomes:
        return Outcome({}, {}, failed[:1])
    first = outcomes[0]
    metrics = {
        name: over_seeds([o.metrics[name] for o in outcomes if name in o.metrics], *bounds(name))
        for name in first.metrics
    }
    few = ["two seeds are few: what lies between them is itself uncertain, so that the intervals are wide"]
    return Outcome(metrics, first.curves, [*first.notes, *failed, *(few if len(outcomes) == 2 else [])])


def _making(
    protocol: str,
    data: str,
    split: str,
    seeds: Sequence[int],
    settings: ProtocolConfig,
    training: int,
    notes: Sequence[str],
) -> Made:
    measure, values = PROTOCOLS[protocol], asdict(settings)
    used = {name: values[name] for name in measure.settings}
    seeds = list(seeds) if measure.seeded else list(seeds)[:1]
    return Made(data, split, protocol, __version__, seeds, training, used, notes=list(notes))


def _add(results: Results, outcome: Outcome, name: str, made: Made, origin: str) -> None:
    for metric, estimate in outcome.metrics.items():
        results.rows.append(Row(name, made.protocol, metric, *estimate[:3], made.split, made.data, estimate.n))
        made.encoders[name] = origin
        if metric not in made.metrics:
            made.metrics.append(metric)
    if outcome.curves:
        results.curves[name, made.protocol] = outcome.curves
    for note in outcome.notes:
        note = f"{made.protocol}: {note}" if not outcome.metrics else note
        for told in (results.notes, made.notes):
            if note not in told:
                told.append(note)


def _prepare_of(name: str, prepare: Prepare | Mapping[str, Prepare], encoders: Mapping[str, Encoder]) -> Prepare:
    if not isinstance(prepare, Mapping):
        return prepare
    if not prepare:
        raise ValueError("prepare is empty, expected a preparation for each encoder")
    return prepare.get(name) or prepare.get(next(iter(encoders))) or next(iter(prepare.values()))


def _with_baselines(encoders: Mapping[str, Encoder], seed: int, notes: list[str], *, raw: bool) -> dict[str, Encoder]:
    everyone = dict(encoders)
    if "untrained" not in everyone:
        trained = next(iter(everyone.values()), None)
        fresh = untrained_copy(trained, seed=seed) if isinstance(trained, nn.Module) else None
        if fresh is None:
            notes.append('no untrained encoder to compare with: give one by the name "untrained"')
        else:
            everyone["untrained"] = fresh
    if raw:
        everyone.setdefault("raw", raw_pixels)
    return everyone


def _parts(
    train: LabelledImages, test: LabelledImages, split: str, protocols: Sequence[str]
) -> tuple[tuple[Part, Part] | None, bool, list[str]]:
    """The images that count, with labels as the training part numbers them; whether they have labels; notes."""
    notes: list[str] = []
    unlabelled = [p for p in protocols if not PROTOCOLS[p].labelled]
    for images, what in ((train, "training"), (test, split)):
        if images.labels is None or not bool((images.labels >= 0).any()):
            lost = ", ".join(p for p in protocols if PROTOCOLS[p].labelled)
            notes = [f"the {what} part has no labels: {lost} could not be measured"] if lost else []
            if not unlabelled:
                return None, False, notes
            return (_whole(train, "training"), _whole(test, split)), False, notes
    assert train.labels is not None and test.labels is not None
    labels, test_labels = train.labels.cpu().long(), test.labels.cpu().long()
    if train.classes is not None and test.classes is not None and list(train.classes) != list(test.classes):
        numbers = {name: number for number, name in enumerate(train.classes)}
        renumber = torch.tensor([numbers.get(name, -1) for name in test.classes])
        test_labels = torch.where(test_labels >= 0, renumber[test_labels.clamp_min(0)], -1)
    present = labels[labels >= 0].unique()
    known = torch.isin(test_labels, present)
    rows: tuple[Tensor, Tensor] = (labels >= 0).nonzero()[:, 0], (known & (test_labels >= 0)).nonzero()[:, 0]
    for part, images, what in (
        (rows[0], train, "training images without a label"),
        (rows[1], test, f"{split} images without a label, or of a class without training images,"),
    ):
        if len(part) < len(images):
            notes.append(f"{len(images) - len(part)} of {len(images)} {what} were left out")
    if len(rows[1]) == 0:
        return None, True, [f"no {split} image has a class that the training part has: nothing was measured"]
    names = train.classes or range(int(labels.max()) + 1)
    if len(present) < 2:
        lost = ", ".join(p for p in protocols if PROTOCOLS[p].labelled)
        if lost:
            notes.append(f"one class ({names[int(present)]}); at least two are needed: {lost} could not be measured")
        return (_whole(train, "training"), _whole(test, split)) if unlabelled else None, False, notes
    if absent := present[~torch.isin(present, test_labels)].tolist():
        few = ", ".join(str(names[c]) for c in absent[:5]) + (", ..." if len(absent) > 5 else "")
        notes.append(f"{len(absent)} of {len(present)} classes have no {split} image and are not measured: {few}")
    first = Part(train, rows[0], labels[rows[0]], "training")
    return (first, Part(test, rows[1], test_labels[rows[1]], split)), True, notes


def _whole(images: LabelledImages, name: str) -> Part:
    return Part(images, torch.arange(len(images)), torch.zeros(len(images), dtype=torch.long), name)
