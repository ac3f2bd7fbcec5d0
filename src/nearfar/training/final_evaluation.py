"""The evaluation at the end of a run: trained encoder, untrained encoder and raw samples, and the report's samples."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from nearfar.data.dataset import Dataset
from nearfar.evaluation.evaluate_run import evaluate_run
from nearfar.evaluation.leakage import training_notes
from nearfar.evaluation.results import Results
from nearfar.evaluation.splits import named
from nearfar.model.load import load
from nearfar.progress import print_line
from nearfar.report.figures import FIGURES, draw_curves
from nearfar.report.refresh import QUIET, RESULTS, save_samples, write_verdict
from nearfar.training.advice import labels_hint
from nearfar.training.report_samples import two_views
from nearfar.training.setup import TrainingSetup

_COMPARED = 20_000  # samples among which copies are looked for


def evaluate_trained(setup: TrainingSetup, folder: Path, console: Console) -> Results:
    """Measure the trained encoder, and write results, curves and the samples that the report shows."""
    config = setup.config
    encoder = load(folder, device=setup.device)  # as `nearfar evaluate` has it, to the last bit
    test, split = setup.splits.evaluated or (setup.train, "training")
    name = named(config.data.path, config.data.test if setup.test is not None else None)
    results = evaluate_run(
        {"trained": encoder},
        replace(setup.splits, notes=[*setup.splits.notes, *training_notes(config, None, None, split)]),
        setup.modality.run_protocols(test),
        data=name,
        untrained=load(folder, device=setup.device, untrained=True),
        seeds=[config.seed],
        finished=_progress(console),
    )
    if test.labels is None and (hint := labels_hint(config)) is not None:
        results.notes.append(hint)
    results.facts.update(data_facts(setup))
    _save(results, folder)
    if not results.rows:
        print_line(console, "not evaluated: " + "; ".join(results.notes))
    problem = save_samples(
        folder,
        encoder,
        test,
        ids=setup.modality.ids(test),
        positives=two_views(setup.method, setup.modality, test, encoder.transform),
        data=name,
        split=split,
        seed=config.seed,
    )
    if problem is not None:
        print_line(console, problem)
    write_verdict(folder)
    return results


def _progress(console: Console) -> Callable[[str, Results], None]:
    """Says now and then what is done, where no bar does."""
    begun = told = time.perf_counter()

    def finished(what: str, results: Results) -> None:
        nonlocal told
        now = time.perf_counter()
        if not console.is_terminal and now - told >= QUIET:
            told = now
            print_line(console, f"evaluating: {what} done after {now - begun:.0f} s")

    return finished


def data_facts(setup: TrainingSetup) -> dict[str, float]:
    """What `next_step` asks of the data: how many samples, how large the images are, how many are copies."""
    facts: dict[str, float] = {"samples": len(setup.train)}
    if (side := setup.modality.native_side()) is not None:
        facts["image_side"] = side
    if not setup.config.data.stream and setup.train.shards is None:
        facts["copies"] = copied_share(setup.train)
    return facts


def copied_share(data: Dataset) -> float:
    """The part of the samples that are equal to an earlier one, value for value, of the first 20,000."""
    count = min(len(data), _COMPARED)
    seen: set[bytes] = set()
    for part in torch.arange(count).split(256):
        batch = data.fetch(part)
        seen.update(hashlib.sha1(row.contiguous().numpy().tobytes()).digest() for row in batch)
    return 1 - len(seen) / count


def _save(results: Results, folder: Path) -> None:
    results.save(folder / RESULTS)
    if results.rows:
        results.save_curves(folder / FIGURES)
        trained = {key: curve for key, curve in results.curves.items() if key[0] == "trained"}
        draw_curves(replace(results, curves=trained), folder / FIGURES)
