"""What the color test says, which sees no labels, beside what the labels say.

    .venv/bin/python benchmarks/color_test.py cifar10/train clothing_small/train made/flowers/train [--seed 0]

Each set is a folder with a folder for each class. Two small encoders are trained for the 60 steps of the trial of
views, with colors kept and varied. "Agreement" is that of clusters of color with clusters of the second one
(`nearfar/training/color_test.py`), which decides where a run has no labels; "by labels" is how many more of the five
nearest neighbors share a label with colors kept than with colors varied, in points.
"""

import argparse
from typing import Any

import torch
from rich.console import Console

from nearfar.config import TrainConfig, completed
from nearfar.settings import build
from nearfar.training.color_test import color_agreement
from nearfar.training.setup import TrainingSetup
from nearfar.training.view_trial import STEPS, ViewTrial, neighbors_of_kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| pictures | agreement | by labels |\n|---|---|---|")
    for data in options.data:
        agreement, by_labels = judged(data, options.seed)
        print(f"| {data} | {agreement:.2f} | {100 * by_labels:+.1f} |", flush=True)


def judged(data: str, seed: int) -> tuple[float, float]:
    given: dict[str, Any] = {"data": {"path": data, "labels": True}, "weights": "none", "device": "cpu", "seed": seed}
    setup = TrainingSetup(build(TrainConfig, completed({**given, "method": "simclr"}), "train"), Console(quiet=True))
    trial = ViewTrial(setup)
    trial.steps = STEPS
    assert trial.data.labels is not None
    views = {"orientation": "flip", "scale": "vary"}
    features = {color: trial._features({"color": color, **views}) for color in ("keep", "vary")}
    kept, varied = (neighbors_of_kind(each, trial.data.labels).mean() for each in features.values())
    pictures = trial.data.fetch(torch.arange(len(trial.data)))
    return color_agreement(pictures, features["vary"], seed), float(kept - varied)


if __name__ == "__main__":
    main()
