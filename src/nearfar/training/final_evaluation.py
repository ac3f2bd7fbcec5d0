"""The evaluation at the end of a run: trained encoder, untrained encoder and raw samples, and the report's samples."""

import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from nearfar.evaluation.evaluate_run import evaluate_run
from nearfar.evaluation.leakage import training_notes
from nearfar.evaluation.results import Results
from nearfar.evaluation.splits import named
from nearfar.model.card import read_card
from nearfar.model.encoder import Encoder
from nearfar.model.save import CARD
from nearfar.nn.whitening import EmbeddingTransform
from nearfar.progress import print_line
from nearfar.report.figures import FIGURES, draw_curves
from nearfar.report.refresh import RESULTS, save_samples
from nearfar.training.advice import labels_hint
from nearfar.training.build_method import untrained_encoder
from nearfar.training.report_samples import two_views
from nearfar.training.setup import TrainingSetup


def evaluate_trained(
    setup: TrainingSetup, folder: Path, console: Console, transform: EmbeddingTransform | None = None
) -> Results:
    """Measure the trained encoder, and write results, curves and the samples that the report shows."""
    start, config = time.perf_counter(), setup.config
    card = read_card(folder / CARD)
    encoder = Encoder(setup.method.encoder, setup.modality, card, transform=transform).to(setup.device).eval()
    test, split = setup.splits.evaluated or (setup.train, "training")
    name = named(config.data.path, config.data.test if setup.test is not None else None)
    results = evaluate_run(
        {"trained": encoder},
        replace(setup.splits, notes=[*setup.splits.notes, *training_notes(config, None, None, split)]),
        setup.modality.run_protocols(test),
        data=name,
        untrained=Encoder(untrained_encoder(config), setup.modality, card).to(setup.device),
        seeds=[config.seed],
    )
    if test.labels is None and (hint := labels_hint(config)) is not None:
        results.notes.append(hint)
    _save(results, folder)
    if results.rows:
        console.print(results.table())
        console.print(f"evaluated in {time.perf_counter() - start:.0f} s on {len(test):,} {split} samples")
    else:
        print_line(console, "not evaluated: " + "; ".join(results.notes))
    problem = save_samples(
        folder,
        encoder,
        test,
        ids=setup.modality.ids(test),
        positives=two_views(setup.method, setup.modality, test, transform),
        data=name,
        split=split,
        seed=config.seed,
    )
    if problem is not None:
        print_line(console, problem)
    return results


def _save(results: Results, folder: Path) -> None:
    results.save(folder / RESULTS)
    if results.rows:
        results.save_curves(folder / FIGURES)
        trained = {key: curve for key, curve in results.curves.items() if key[0] == "trained"}
        draw_curves(replace(results, curves=trained), folder / FIGURES)
