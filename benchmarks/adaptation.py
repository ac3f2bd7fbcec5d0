"""What a run from given weights gains over its start, in so many processor seconds on one thread.

    .venv/bin/python benchmarks/adaptation.py --data clothing_small/train --test clothing_small/test [--seconds 300]
        [--seeds 3] [--method simclr] [--image-size 96] [--weights package:efficientnet-lite0] [--out FILE]
        [--set optimizer.lr=1e-5 data.validation=0]
    .venv/bin/python benchmarks/adaptation.py --data clinc150/train.csv --test clinc150/test.csv --method simcse \
        --weights package:minilm

A run is what `nearfar train --data DATA --weights NAME` would be: settings are automatic, the first steps are timed,
the number of steps that fit is fixed, and a trial of views is inside. Without `--weights` it starts from what the
automatic settings choose. The start and the end are measured on the same test samples: k-NN (k = 20, cosine) of plain
and of whitened features, linear probes of all labels and of 1, 5 and 10 of a class (mean of 5 draws), or of pairs with
scores Spearman's rank correlation. With `--finetune`, so many draws of 1, 5 and 10 labels of each class are
fine-tuned on, by protocol finetune. "kept" says which of the two the run would keep, by held-out samples without
labels.
"""

import argparse
import copy
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from torch import Tensor

from learning import train
from machine import describe
from nearfar.config import TrainConfig, completed
from nearfar.evaluation.embedding import embed
from nearfar.evaluation.knn import knn_accuracy
from nearfar.evaluation.linear import linear_probe
from nearfar.evaluation.measure import TestData
from nearfar.evaluation.measure import measure as by_protocols
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.finetune import FinetuneSettings
from nearfar.evaluation.protocols.similarity import pair_cosines, spearman
from nearfar.evaluation.task import Embedder
from nearfar.nn.whitening import fit_transform
from nearfar.settings import build
from nearfar.training.setup import TrainingSetup
from nearfar.training.view_trial import choose_view_factors

FEW = (1, 5, 10)  # labels of each class
DRAWS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--method")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--set", nargs="+", default=[], help="further settings, as optimizer.lr=1e-5")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--finetune", type=int, default=0, help="draws of few labels; each takes minutes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        results.append(run(options, seed, results[0]["start"] if results else None))
        print(f"seed {seed}: {results[-1]}", flush=True)
    lines = table(results)
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join([f"# Gained over the start\n\n{describe()}\n", *lines, ""]), encoding="utf-8")


def run(options: argparse.Namespace, seed: int, measured: dict[str, float] | None = None) -> dict[str, Any]:
    """One run: what was measured of its start, which is the same for every seed, and of its end."""
    asked = {"weights": options.weights, "method": options.method, "image_size": options.image_size}
    given: dict[str, Any] = {
        "data": {
            "path": options.data,
            "test": options.test,
            **({"labels": True} if Path(options.data).is_dir() else {}),
        },
        "seed": seed,
        "time": f"{options.seconds}s",
        **{name: value for name, value in asked.items() if value is not None},
    }
    for each in options.set:
        key, _, value = each.partition("=")
        *sections, name = key.split(".")
        inside = given
        for section in sections:
            inside = inside.setdefault(section, {})
        inside[name] = yaml.safe_load(value)
    config: TrainConfig = build(TrainConfig, completed(given), "train")
    setup = TrainingSetup(replace(config, device="cpu"), Console(quiet=True))
    start = copy.deepcopy(setup.method.encoder)
    found: dict[str, Any] = {"start": measured or measure(setup, options.finetune)}
    begun = time.process_time()
    if setup.modality.name == "image":
        choose_view_factors(setup, Path("unused"), Console(quiet=True))
    spent = time.process_time() - begun
    used, steps = train(setup, options.seconds - spent)
    found |= {"end": measure(setup, options.finetune), "steps": steps, "seconds": round(spent + used), "kept": "end"}
    if setup.comparison is not None:
        setup.comparison.make_start = lambda: start
        score = setup.comparison.score(setup.comparison.measure(setup.method))
        found |= {"kept": "end" if score is not None and score > 0 else "start", "score": score}
    return found


@torch.no_grad()
def measure(setup: TrainingSetup, draws: int = 0) -> dict[str, float]:
    """Everything that the labels or scores of the test part can tell of the encoder as it is."""
    assert setup.test is not None
    encoder, test = setup.method.encoder.eval(), setup.test
    if test.scores is not None:
        first, second = (
            torch.cat([encoder(part.long()) for part in column.split(256)])
            for column in test.tokens[:2]  # type: ignore[attr-defined]
        )
        encoder.train()
        return {"Spearman": 100 * spearman(pair_cosines(first, second), test.scores.double())}
    train_part = setup.splits.everything  # with the validation samples, as a run's own evaluation takes them
    assert train_part is not None
    with torch.autocast("cpu", torch.bfloat16, enabled=setup.modality.name == "text"):  # cosine 0.9999, twice as fast
        rows, others = (embed(encoder, part, prepare=setup.modality.prepare) for part in (train_part, test))
    encoder.train()
    assert train_part.labels is not None and test.labels is not None
    labels, truth = train_part.labels.long(), test.labels.long()
    found = {"k-NN": 100 * knn_accuracy(rows, labels, others, truth).value}
    whiten = fit_transform(rows, "whitened")
    if whiten is not None:
        found["k-NN, whitened"] = 100 * knn_accuracy(whiten(rows), labels, whiten(others), truth).value
    found["linear"] = probe(rows, labels, others, truth)
    for each in FEW:
        few = [drawn(labels, each, seed) for seed in range(DRAWS)]
        found[f"linear, {each} a class"] = statistics.mean(probe(rows[i], labels[i], others, truth) for i in few)
    for each in FEW if draws else ():
        found[f"fine-tuned, {each} a class"] = statistics.mean(finetuned(setup, each, seed) for seed in range(draws))
    return found


def finetuned(setup: TrainingSetup, each: int, seed: int) -> float:
    """Accuracy of encoder and linear layer, trained on so many labels of each class."""
    assert setup.test is not None
    where = TestData(setup.train, setup.test, "", "test", [], setup.modality.vary)
    asked = ProtocolConfig(finetune=FinetuneSettings(per_class=[each]))
    embedder = Embedder("encoder", setup.method.encoder, setup.modality.prepare)
    results = by_protocols([embedder], where, ["finetune"], asked, seeds=[seed])
    return 100 * next(row.value for row in results.rows if row.metric.startswith("accuracy"))


def probe(rows: Tensor, labels: Tensor, others: Tensor, truth: Tensor) -> float:
    classes = int(max(labels.max(), truth.max())) + 1
    fitted = linear_probe(rows, labels, classes=classes, strengths=None if len(rows) > 10 * classes else [0.1])
    return 100 * float((fitted(others).argmax(1) == truth).double().mean())


def drawn(labels: Tensor, each: int, seed: int) -> Tensor:
    """Rows with so many of each class."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return torch.cat([order[labels[order] == label][:each] for label in labels.unique()])


def table(results: list[dict[str, Any]]) -> list[str]:
    lines = ["| | start | end | gain |", "|---|---|---|---|"]
    for name in results[0]["start"]:
        start, end = ([each[part][name] for each in results] for part in ("start", "end"))
        gains = [b - a for a, b in zip(start, end, strict=True)]
        spread = f" ± {statistics.stdev(gains):.1f}" if len(gains) > 1 else ""
        before, after, gain = (statistics.mean(values) for values in (start, end, gains))
        lines.append(f"| {name} | {before:.1f} | {after:.1f} | {gain:+.1f}{spread} |")
    kept = ", ".join(each["kept"] for each in results)
    return [*lines, "", f"Kept: {kept}. Steps: {', '.join(str(each['steps']) for each in results)}."]


if __name__ == "__main__":
    main()
