"""What learns most from sounds in the same processor seconds: each setting alone, changed from the automatic ones.

    .venv/bin/python benchmarks/learning_sounds.py --data fsdd/recordings [--seconds 30] [--seeds 1]
        [--only default adamw] [--folds jackson,lucas nicolas,yweweler] [--test george,theo] [--out FILE]

`--data` is a folder of recordings named LABEL_SPEAKER_TAKE, such as the Free Spoken Digit Dataset. The speakers of
`--test` are left out of everything; each fold holds two of the others out, trains on the rest without labels, and then
reads out the held-out ones with the labels of the rest. A run is what `nearfar train` would be, with one thread: the
first steps are timed in processor seconds and the number of steps that fit is fixed; views, losses and optimizer are
inside. Embeddings are whitened, as those of a run usually are.
"""

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from learning import train
from machine import describe
from nearfar.config import TrainConfig, completed
from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import embed
from nearfar.evaluation.knn import knn_predict
from nearfar.evaluation.linear import linear_probe
from nearfar.nn.whitening import fit_transform
from nearfar.settings import build
from nearfar.training.setup import TrainingSetup

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "adamw": {"optimizer": {"name": "adamw", "lr": 0.004}},
    "temperature 0.1": {"options": {"temperature": 0.1}},
    "temperature 0.2": {"options": {"temperature": 0.2}},
    "temperature 1": {"options": {"temperature": 1.0}},
    "4 views of 32": {"views": {"count": 4}, "batch_size": 32},
    "batch 128": {"batch_size": 128},
    "64 bands": {"sound": {"n_mels": 64}},
    "crops, not stretched": {"backbone": "audio-tiny", "views": "speech"},
    "views simclr": {"backbone": "audio-tiny", "views": "simclr"},
    "views byol_a": {"backbone": "audio-tiny", "views": "byol_a"},
    "not trimmed": {"sound": {"trim_db": None}},
    "no range": {"sound": {"range_db": None}},
    "neither": {"sound": {"trim_db": None, "range_db": None}},
    "normalized by the data": {"sound": {"normalize": "data"}},
    "float32": {"precision": "32"},
}
NEIGHBORS = (1, 5, 20)
COLUMNS = [*(f"k-NN {k}" for k in NEIGHBORS), "linear"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--methods", nargs="+", default=["simclr"])
    parser.add_argument("--folds", nargs="+", default=["jackson,lucas", "nicolas,yweweler"])
    parser.add_argument("--test", default="george,theo", help="speakers that no choice may see")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(options.data.resolve().iterdir()):
            if path.is_file() and not any(f"_{name}_" in path.name for name in options.test.split(",")):
                (Path(folder) / path.name).symlink_to(path)
        for method in options.methods:
            for name in options.only:
                results = [
                    run(folder, fold, method, name, seed, options.seconds)
                    for fold in options.folds
                    for seed in range(options.seeds)
                ]
                lines.append(row(method, name, results))
                print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text(page(options, lines), encoding="utf-8")


def run(folder: str, fold: str, method: str, variant: str, seed: int, seconds: float) -> dict[str, float]:
    """One run of so many processor seconds: accuracies, steps and the seconds it took."""
    data = {"path": folder, "pattern": "{label}_{speaker}_{take}", "held_out": f"speaker={fold}", "validation": 0.0}
    given = {"data": data, "method": method, "seed": seed, "epochs": 1, "device": "cpu", **VARIANTS[variant]}
    config: TrainConfig = build(TrainConfig, completed(given), "train")
    setup = TrainingSetup(replace(config, data=replace(config.data, labels=True)), Console(quiet=True))
    found = {f"untrained {name}": value for name, value in accuracies(setup).items()} if seconds > 0 else {}
    used, steps = train(setup, seconds)
    return {**accuracies(setup), **found, "steps": steps, "seconds": used}


def accuracies(setup: TrainingSetup) -> dict[str, float]:
    """In percent, of the encoder's whitened features."""
    assert setup.test is not None
    (h, labels), (test, truth) = (features(setup, part) for part in (setup.train, setup.test))
    transform = fit_transform(h, "whitened")
    assert transform is not None
    h, test, classes = transform(h), transform(test), int(labels.max()) + 1
    scores = {f"k-NN {k}": knn_predict(h, labels, test, k=k, classes=classes) for k in NEIGHBORS}
    scores["linear"] = linear_probe(h, labels, classes=classes)(test)
    return {name: 100 * float((each.argmax(1) == truth).float().mean()) for name, each in scores.items()}


def features(setup: TrainingSetup, data: Dataset) -> tuple[Tensor, Tensor]:
    assert data.labels is not None
    encoder = setup.method.encoder.eval()
    found = embed(encoder, data, prepare=setup.modality.prepare)
    encoder.train()
    return found, data.labels


def row(method: str, name: str, results: list[dict[str, float]]) -> str:
    of = {key: statistics.mean(each[key] for each in results) for key in results[0]}
    cells = [f"{of[column]:.1f} ({of[f'untrained {column}']:.1f})" for column in COLUMNS]
    return f"| {method} | {name} | {' | '.join(cells)} | {of['steps']:.0f} | {of['seconds']:.0f} |"


def page(options: argparse.Namespace, lines: list[str]) -> str:
    how = (
        f"{describe()}. `python benchmarks/learning_sounds.py --data {options.data} --seconds {options.seconds:.0f} "
        f"--seeds {options.seeds}`, one thread; mean of {options.seeds} seeds and the folds "
        f"{' and '.join(options.folds)} (speakers held out), in brackets the untrained network.\n"
    )
    head = f"| method | setting | {' | '.join(f'{name} %' for name in COLUMNS)} | steps | seconds |"
    title = f"# Sounds: learning in {options.seconds:.0f} processor seconds\n"
    return "\n".join([title, how, head, "|" + "---|" * (4 + len(COLUMNS)), *lines, ""])


if __name__ == "__main__":
    main()
