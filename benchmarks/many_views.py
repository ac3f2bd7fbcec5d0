"""More views of fewer samples: k-NN after equal processor seconds, beside two views.

    .venv-bench/bin/python benchmarks/many_views.py --data cifar10 [--seconds 300] [--seeds 3] [--methods simclr byol]
        [--arms 2x256 4x128 2+4x128] [--rates 0.001 0.002 0.004] [--backbone micro] [--out FILE]

`--data` holds `train/` with a folder for each class; `test/` is never opened. A tenth of the training pictures is held
out for validation: neither trained on nor a neighbor. An arm is VIEWSxSAMPLES, or VIEWS+LOCALxSAMPLES with local crops;
2x256, 4x128 and 8x64 encode equally many rows in a step. Every run has one thread and the same number of processor
seconds, views and optimizer included, which the cosine of the learning rate is stretched over. Each rate is at 256
samples and proportional to the batch; the table has each arm at its best one, chosen on the validation part by the mean
over seeds.
"""

import argparse
import math
import re
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from machine import describe
from nearfar import _torchvision  # noqa: F401
from nearfar.evaluation.knn import knn_accuracy
from nearfar.methods import METHODS, Batch
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.opening import open_images
from nearfar.modalities.image.views.prepare import resize_eval
from nearfar.modalities.image.views.presets import PRESETS, local_view, make_views, simclr

SIZE, DECAY, WARMUP = 32, 0.01, 0.05
OPTIONS: dict[str, dict[str, Any]] = {  # of the recipes in recipes/, for small encoders
    "simclr": {},
    "simsiam": {"dim": 256, "hidden": 64},
    "byol": {"momentum": 0.99, "dim": 128, "hidden": 512},
}
ARMS = ("2x64", "2x128", "2x256", "4x64", "4x128", "4x256", "8x64", "2+4x128", "2+6x64")


@dataclass(frozen=True)
class Arm:
    """How many views of how many samples."""

    full: int
    local: int
    samples: int

    @classmethod
    def of(cls, text: str) -> "Arm":
        found = re.fullmatch(r"(\d+)(?:\+(\d+))?x(\d+)", text)
        if found is None:
            raise argparse.ArgumentTypeError(f"{text!r} is no arm, expected VIEWSxSAMPLES or VIEWS+LOCALxSAMPLES")
        full, local, samples = (int(number or 0) for number in found.groups())
        return cls(full, local, samples)

    def __str__(self) -> str:
        return f"{self.full}{f' + {self.local} local' if self.local else ''} of {self.samples}"


@dataclass(frozen=True)
class Data:
    """Pictures (N, 3, 32, 32) uint8 with their classes."""

    train: Tensor
    labels: Tensor
    held_out: Tensor
    held_out_labels: Tensor

    @classmethod
    def read(cls, folder: Path) -> "Data":
        found = open_images(str(folder / "train"), stored_size=SIZE, labels=True)
        images, labels = found.fetch(torch.arange(len(found))), found.labels
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        held, rest = order[: len(order) // 10], order[len(order) // 10 :]
        return cls(images[rest], labels[rest], images[held], labels[held])


def train(data: Data, name: str, arm: Arm, rate: float, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """k-NN on the validation part, steps and epochs after the given processor seconds."""
    torch.manual_seed(seed)
    encoder = backbone(options.backbone, size=SIZE)
    method = METHODS[name](encoder, features=encoder.num_features, samples=len(data.train), **OPTIONS[name]).train()
    one = METHODS[name].max_views == 1  # whose view is no matter of taste
    first = (PRESETS[METHODS[name].views_of("image")] if one else simclr)(SIZE)[0]
    recipes = [first] * arm.full + [local_view(first)] * arm.local
    trained = [p for p in method.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    peak = rate * arm.samples / 256
    optimizer = torch.optim.AdamW(groups, lr=peak)
    order, step, used = torch.empty(0, dtype=torch.long), 0, 0.0
    shuffle = torch.Generator().manual_seed(seed)
    start = time.process_time()
    while (used := time.process_time() - start) < options.seconds:
        if len(order) < arm.samples:
            order = torch.randperm(len(data.train), generator=shuffle)
        index, order = order[: arm.samples], order[arm.samples :]
        views = make_views(data.train[index], recipes, seed=seed, step=step)
        part = used / options.seconds
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, part / WARMUP, 0.5 * (1 + math.cos(math.pi * part)))
        loss = method(Batch(views, index, index, local=arm.local)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        method.after_step(part)
    features = [embedded(method.encoder, images) for images in (data.train, data.held_out)]
    found = knn_accuracy(features[0], data.labels, features[1], data.held_out_labels)
    return {"knn": found.value, "steps": step, "epochs": step * arm.samples / len(data.train), "seconds": used}


@torch.no_grad()
def embedded(encoder: torch.nn.Module, images: Tensor) -> Tensor:
    encoder.eval()
    return torch.cat([encoder(resize_eval(part, SIZE)) for part in images.split(256)])


Runs = dict[tuple[str, Arm], dict[float, list[dict[str, float]]]]


def page(options: argparse.Namespace, data: Data, found: Runs, untrained: float) -> str:
    lines = []
    for (name, arm), by_rate in found.items():
        rate = max(by_rate, key=lambda r: statistics.mean(run["knn"] for run in by_rate[r]))
        runs = by_rate[rate]
        values = [run["knn"] for run in runs]
        spread = f"{statistics.stdev(values):.1%}" if len(values) > 1 else "–"
        rows, steps = (arm.full + arm.local) * arm.samples, statistics.mean(run["steps"] for run in runs)
        cells = [name, arm, rows, f"{statistics.mean(values):.1%}", spread, ", ".join(f"{v:.1%}" for v in values)]
        cells += [f"{rate:g}", f"{steps:.0f}", f"{statistics.mean(run['epochs'] for run in runs):.1f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    command = " ".join(["python benchmarks/many_views.py", "--data", options.data.name, *options.said])
    error = math.sqrt(0.25 / len(data.held_out))
    return f"""# Many views at equal processor seconds

{describe()}, one thread.
`{command}`:
{options.seconds:g} processor seconds for each run, {options.seeds} seeds, backbone `{options.backbone}`, {SIZE} px,
{len(data.train):,} pictures to train on, k-NN on {len(data.held_out):,} others of the training part (standard error
up to {error:.1%}).
Untrained: {untrained:.1%}.

| method | views | rows of a step | k-NN, mean | deviation | of each seed | learning rate | steps | epochs |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

{(__doc__ or "").strip().split(chr(10) * 2)[2]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with train/, and in it a folder per class")
    parser.add_argument("--seconds", type=float, default=300.0, help="processor seconds of each run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=sorted(OPTIONS), default=list(OPTIONS))
    parser.add_argument("--arms", nargs="+", type=Arm.of, default=[Arm.of(text) for text in ARMS])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.002], help="of AdamW, at 256 samples")
    parser.add_argument("--backbone", default="tiny", help="micro, tiny, ...")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "many_views.md")
    options = parser.parse_args()
    left_out = ("--data", str(options.data), "--out", str(options.out))  # --data is said by its last name alone
    options.said = [word for word in sys.argv[1:] if word not in left_out]
    torch.set_num_threads(1)
    data = Data.read(options.data)
    torch.manual_seed(0)
    fresh = backbone(options.backbone, size=SIZE)
    features = [embedded(fresh, images) for images in (data.train, data.held_out)]
    untrained = knn_accuracy(features[0], data.labels, features[1], data.held_out_labels).value
    found: Runs = {}
    for seed in range(options.seeds):  # arms take turns, so that a finished seed has them all
        for name in options.methods:
            for arm in options.arms:
                for rate in options.rates:
                    run = train(data, name, arm, rate, seed, options)
                    found.setdefault((name, arm), {}).setdefault(rate, []).append(run)
                    print(f"seed {seed}, {name}, {arm}, rate {rate:g}: {run}", file=sys.stderr)
        text = page(options, data, found, untrained)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
