"""Every encoder under every protocol: the measuring itself. `evaluate_run` decides which encoders, and on what."""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.markup import escape
from torch import Tensor

from nearfar import __version__
from nearfar.data.dataset import Dataset
from nearfar.evaluation.metrics import over_seeds
from nearfar.evaluation.paired import SampleValues, compare
from nearfar.evaluation.protocols import Protocol, ProtocolConfig, find_protocol
from nearfar.evaluation.results import BY, Comparison, Provenance, Results, Row, bounds
from nearfar.evaluation.task import Compute, Embedder, Outcome, Part, Task, Vary

Finished = Callable[[str, Results], None]  # called after each protocol of each encoder, with the results so far


@dataclass(frozen=True)
class TestData:
    """What is measured on.

    Attributes:
        train: samples whose labels, or boxes, the protocols may use.
        test: samples on which numbers are measured; nothing is fitted or chosen on them.
        name, split: of the data and of the test part, in the result rows.
        notes: on the data, which come first.
        vary: how raw samples are augmented; None: not at all.
    """

    __test__ = False  # not a class of tests

    train: Dataset
    test: Dataset
    name: str = "data"
    split: str = "test"
    notes: Sequence[str] = ()
    vary: Vary | None = field(default=None, repr=False)


def measure(
    embedders: Sequence[Embedder],
    data: TestData,
    protocols: Sequence[str],
    settings: ProtocolConfig | None = None,
    *,
    seeds: Sequence[int] = (0,),
    compute: Compute | None = None,
    finished: Finished | None = None,
) -> Results:
    """Measure frozen encoders on held-out data.

    Args:
        embedders: in the order of the rows.
        data: data with boxes are measured by the protocols that need boxes, other data by the other protocols.
        protocols: names of `PROTOCOLS`, or MODULE:NAME.
        settings: of the protocols.
        seeds: for the protocols that depend on one; the others take the first.
        compute: batch size, device and progress.
        finished: called after each protocol of each encoder, so that numbers can be kept whatever happens next.

    Returns:
        Rows in the order of the encoders; notes on what could not be measured, instead of an error.
    """
    if not seeds:
        raise ValueError("seeds is empty, expected at least 1")
    chosen = [find_protocol(name) for name in protocols]
    settings, boxed = settings or ProtocolConfig(), data.train.boxed and data.test.boxed
    fitting = [protocol for protocol in chosen if (protocol.needs == "boxes") == boxed]
    parts, notes = _parts(data, fitting)
    if lost := ", ".join(protocol.name for protocol in chosen if protocol not in fitting):
        what = "boxes, and only detectors are measured on them" if boxed else "no boxes"
        notes.insert(0, f"the data have {what}: {lost} could not be measured")
    notes[:0] = data.notes
    results = Results([], notes)
    if parts is None or not fitting:
        return results
    own, compared = {each.name: each.settings_for(settings, parts.train.labels) for each in fitting}, _Compared(results)
    provenance = {
        protocol.name: Provenance(
            data.name,
            data.split,
            protocol.name,
            __version__,
            list(seeds) if protocol.seeded else list(seeds)[:1],
            len(parts.train),
            protocol.used_settings(settings, own[protocol.name]),
            notes=list(notes),
        )
        for protocol in fitting
    }
    results.provenance.extend(provenance.values())
    for embedder in embedders:
        task = Task(
            embedder,
            parts.train,
            parts.test,
            classes=len(data.train.classes or ()) if boxed else int(parts.train.labels.max()) + 1,
            labelled=parts.labelled,
            validation_fraction=settings.validation_fraction,
            bootstrap=settings.bootstrap,
            compute=compute or Compute(),
            vary=data.vary,
        )
        if not boxed and (broken := _not_finite(task)):
            line = f"{task.name}: the embeddings of {broken} samples are not finite, so nothing was measured on them"
            for told in (notes, *(source.notes for source in provenance.values())):
                told.append(line)
            continue
        for protocol in fitting:
            if not _applies(protocol, task):
                continue
            shown = task.compute.progress and not protocol.shows_progress
            with Console().status(escape(f"{task.name}: {protocol.name}")) if shown else nullcontext():
                outcome = _over_seeds(protocol, task, own[protocol.name], provenance[protocol.name].seeds)
            _add(results, outcome, embedder, protocol, provenance[protocol.name])
            compared.add(embedder, protocol, outcome, provenance[protocol.name])
            if finished is not None:
                finished(f"{task.name}: {protocol.name}", results)
    return results


def _applies(protocol: Protocol, task: Task) -> bool:
    """Whether the protocol is worth running; a protocol that runs and fails leaves a note."""
    embedder, baseline = task.embedder, task.embedder.role == "baseline"
    return not (
        (protocol.labelled and not task.labelled)
        or (protocol.reads_texts and baseline and embedder.embed_texts is None)
        or (protocol.has_frames and embedder.frames is None)
        or (protocol.raw_only and task.name != "raw")
        or (embedder.protocols is not None and protocol.name not in embedder.protocols)
    )


def _not_finite(task: Task) -> int:
    """How many samples have embeddings that are not finite."""
    features = [h for h in (task.train_features, task.test_features) if not h.is_sparse]
    return sum(int((~h.isfinite().all(1)).sum()) for h in features)


def _over_seeds(protocol: Protocol, task: Task, settings: Any, seeds: Sequence[int]) -> Outcome:
    """The mean over seeds; curves and notes of the first. What the data do not allow becomes a note."""
    outcomes: list[Outcome] = []
    failed: list[str] = []
    for seed in seeds:
        try:
            outcomes.append(protocol.run(task, settings, seed))
        except (ValueError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            reason = error if isinstance(error, ValueError) else "not enough memory"
            failed.append(f"{task.name}: {f'seed {seed}: ' if len(seeds) > 1 else ''}{reason}")
    if not outcomes:
        return Outcome({}, {}, failed[:1])
    first = outcomes[0]
    metrics = {
        name: over_seeds([o.metrics[name] for o in outcomes if name in o.metrics], *bounds(protocol.style(name)))
        for name in first.metrics
    }
    few = ["two seeds are few: their spread is itself uncertain, so the intervals are wide"]
    notes = [*first.notes, *failed, *(few if len(outcomes) == 2 else [])]
    return Outcome(metrics, first.curves, notes, _mean_samples([outcome.samples for outcome in outcomes]))


def _mean_samples(seeds: Sequence[dict[str, SampleValues]]) -> dict[str, SampleValues]:
    """Each sample's mean over seeds; of one seed, the values themselves. Metrics that are no mean are left out."""
    if len(seeds) == 1:
        return seeds[0]
    found = {}
    for metric, first in seeds[0].items():
        values = [each[metric].values.double() for each in seeds if metric in each]
        if first.statistic is None and len(values) == len(seeds) and len({len(x) for x in values}) == 1:
            found[metric] = SampleValues(torch.stack(values).mean(0), groups=first.groups)
    return found


class _Compared:
    """Compares each encoder with all that come after it, as they are measured, and adds it to the results."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._encoders: dict[tuple[str, str], dict[str, SampleValues]] = {}  # by name and protocol

    def add(self, embedder: Embedder, protocol: Protocol, outcome: Outcome, source: Provenance) -> None:
        """Compare what was measured last with the encoders before it."""
        self._compare(embedder, protocol.name, embedder.name, outcome.samples, source)
        if protocol.rival_of is not None:
            main = {name: x for name, x in outcome.samples.items() if re.fullmatch(protocol.headline, name)}
            self._compare(embedder, protocol.rival_of, f"{embedder.name}{BY}{protocol.name}", main, source)
        if embedder.role == "encoder":
            self._encoders[embedder.name, protocol.name] = outcome.samples

    def _compare(
        self, embedder: Embedder, protocol: str, name: str, samples: dict[str, SampleValues], source: Provenance
    ) -> None:
        for (encoder, measured_by), own in self._encoders.items():
            for metric, values in own.items() if measured_by == protocol and encoder != embedder.name else ():
                found = compare(values, samples[metric]) if metric in samples else None
                if found is not None:
                    self.results.comparisons.append(
                        Comparison(encoder, name, protocol, metric, *found, source.split, source.data, embedder.role)
                    )


def _add(results: Results, outcome: Outcome, embedder: Embedder, protocol: Protocol, source: Provenance) -> None:
    for metric, estimate in outcome.metrics.items():
        results.rows.append(
            Row(
                *(embedder.name, source.protocol, metric, *estimate[:3], source.split, source.data, estimate.n),
                stated=protocol.style(metric),
            )
        )
        source.encoders[embedder.name] = embedder.origin
        if metric not in source.metrics:
            source.metrics.append(metric)
    if outcome.curves:
        results.curves[embedder.name, source.protocol] = outcome.curves
    for note in outcome.notes:
        note = f"{source.protocol}: {note}" if not outcome.metrics else note
        for told in (results.notes, source.notes, *([results.details] if outcome.metrics else [])):
            if note not in told:
                told.append(note)


class _Parts(NamedTuple):
    train: Part
    test: Part
    labelled: bool


def _parts(data: TestData, protocols: Sequence[Protocol]) -> tuple[_Parts | None, list[str]]:
    """The samples that count, with labels as the training part numbers them; notes. None: nothing can be measured."""
    train, test, split = data.train, data.test, data.split
    lost = ", ".join(protocol.name for protocol in protocols if protocol.labelled)
    unlabelled = None
    if any(not protocol.labelled for protocol in protocols):
        unlabelled = _Parts(_whole(train, "training"), _whole(test, split), False)
    for part, name in ((train, "training"), (test, split)):
        if part.labels is None or not bool((part.labels >= 0).any()):
            return unlabelled, [f"the {name} part has no labels: {lost} could not be measured"] if lost else []
    assert train.labels is not None and test.labels is not None
    labels, test_labels = train.labels.cpu().long(), _renumbered(test, train)
    present = labels[labels >= 0].unique()
    rows = (labels >= 0).nonzero()[:, 0]
    test_rows = (torch.isin(test_labels, present) & (test_labels >= 0)).nonzero()[:, 0]
    notes = [
        f"{total - len(used)} of {total} {what} were left out"
        for used, total, what in (
            (rows, len(train), "training samples without a label"),
            (test_rows, len(test), f"{split} samples without a label, or of a class without training samples,"),
        )
        if len(used) < total
    ]
    if len(test_rows) == 0:
        return None, [f"no {split} sample has a class that the training part has: nothing was measured"]
    names = train.classes or [str(number) for number in range(int(labels.max()) + 1)]
    if len(present) < 2:
        if lost:
            notes.append(f"one class ({names[int(present)]}); at least two are needed: {lost} could not be measured")
        return unlabelled, notes
    if absent := present[~torch.isin(present, test_labels)].tolist():
        few = ", ".join(names[c] for c in absent[:5]) + (", ..." if len(absent) > 5 else "")
        notes.append(f"{len(absent)} of {len(present)} classes are not measured, without {split} samples: {few}")
    first = Part(train, rows, labels[rows], "training")
    return _Parts(first, Part(test, test_rows, test_labels[test_rows], split), True), notes


def _renumbered(test: Dataset, train: Dataset) -> Tensor:
    """(N,) labels of the test part by the names of the training part's classes; -1 for other classes."""
    assert test.labels is not None
    labels = test.labels.cpu().long()
    if train.classes is None or test.classes is None or list(train.classes) == list(test.classes):
        return labels
    numbers = {name: number for number, name in enumerate(train.classes)}
    renumber = torch.tensor([numbers.get(name, -1) for name in test.classes])
    return torch.where(labels >= 0, renumber[labels.clamp_min(0)], -1)


def _whole(data: Dataset, name: str) -> Part:
    return Part(data, torch.arange(len(data)), torch.zeros(len(data), dtype=torch.long), name)
