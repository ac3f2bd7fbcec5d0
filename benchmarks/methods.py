"""Methods of images after equal processor seconds, each with the options that it declares for short runs: k-NN.

    .venv/bin/python benchmarks/methods.py --data cifar10 [--seconds 60] [--methods simclr swav dino]
        [--rates 0.002] [--backbone quick] [--out FILE]

Everything else is as in many_views.py: a tenth of the training pictures is held out, `test/` is never opened, one
thread, AdamW with the best of the rates by the held-out part, SimCLR's views, or those of a method of one view. A
method takes the number of views that it declares for short runs, and 256 views in a step.
"""

import argparse
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import torch

import many_views
from machine import describe
from many_views import SIZE, Arm, Data, embedded, train
from nearfar.evaluation.knn import knn_accuracy
from nearfar.methods import METHODS
from nearfar.modalities.image.backbones import backbone

USUAL = [name for name, kind in METHODS.items() if "image" in kind.modalities and kind.short_run_of("image")]


def arm_of(name: str) -> Arm:
    """As many views as it declares for short runs, of so many samples that there are 256."""
    kind = METHODS[name]
    count = kind.short_run_of("image").get("views", {}).get("count") or kind.usual_views or kind.max_views or 2
    return Arm(count, 0, 256 // count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/, a folder for each class")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--methods", nargs="+", default=USUAL, choices=list(METHODS))
    parser.add_argument("--rates", nargs="+", type=float, default=[0.002])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--backbone", default="quick")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Data.read(options.data)
    data = replace(data, train=data.train.contiguous())
    torch.manual_seed(0)
    features = [embedded(backbone(options.backbone, size=SIZE), images) for images in (data.train, data.held_out)]
    untrained = knn_accuracy(features[0], data.labels, features[1], data.held_out_labels).value
    lines = [
        f"untrained: {100 * untrained:.1f} %",
        "",
        "| method | k-NN | views | steps | epochs | rate |",
        "|---|---|---|---|---|---|",
    ]
    for name in options.methods:
        many_views.OPTIONS[name] = dict(METHODS[name].short_run_of("image").get("options", {}))
        arm, found = arm_of(name), {}
        for rate in options.rates:
            found[rate] = [train(data, name, arm, rate, seed, options) for seed in range(options.seeds)]
        best = max(found, key=lambda rate: statistics.mean(run["knn"] for run in found[rate]))
        mean = {key: statistics.mean(run[key] for run in found[best]) for key in found[best][0]}
        row = f"{100 * mean['knn']:.1f} % | {arm} | {mean['steps']:,.0f} | {mean['epochs']:.1f} | {best:g}"
        lines.append(f"| {name} | {row} |")
        print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join([f"{describe()}", "", f"`{' '.join(['python', *sys.argv])}`", "", *lines])
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
