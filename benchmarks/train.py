"""SimCLR from a folder of pictures: `nearfar.train` beside lightly's own pipeline, same backbone, batch and epochs.

    .venv-bench/bin/python benchmarks/train.py --data cifar10 [--backbone micro] [--epochs 15] [--seeds 2] [--out FILE]

`--data` holds `train/` and `test/` with a folder for each class. Each run has a process of its own; the two take turns.
Both use every core, the same encoder, head, temperature, optimiser, learning-rate schedule and operations on views.
lightly decodes and transforms in as many workers of its data loader as make it quickest here, which is tried first,
and its loop is the one its examples show. "lightly, channels last" is that loop with the memory layout that nearfar
trains in, which the examples do not have: what is left of the difference where the network is fed alike.
The k-NN is one and the same, on features of the same test pictures. nearfar's seconds include its health
measurements, its k-NN readouts and its checkpoints; lightly's are those of the bare training loop.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from machine import describe
from nearfar import _torchvision  # noqa: F401
from nearfar.evaluation.embedding import embed
from nearfar.evaluation.knn import knn_accuracy
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.opening import open_images
from nearfar.modalities.image.views.prepare import resize_eval
from nearfar.nn.heads import projector

SIZE, BATCH, TEMPERATURE, DIM = 32, 256, 0.5, 128
RATE, DECAY, MOMENTUM, WARMUP = 0.06, 5e-4, 0.9, 0.05
TARGET = 1.8
LAYOUT = "lightly, channels last"


def train_nearfar(data: Path, name: str, epochs: int, seed: int, folder: Path) -> tuple[nn.Module, float]:
    """The trained encoder and samples per second."""
    import nearfar

    encoder = nearfar.train(
        {"path": data / "train", "stored_size": SIZE, "validation": 0.0},
        out=folder / "run",
        method="simclr",
        views="simclr",
        backbone=name,
        image_size=SIZE,
        epochs=epochs,
        batch_size=BATCH,
        seed=seed,
        options={"temperature": TEMPERATURE, "dim": DIM},
        optimizer={"name": "sgd", "lr": RATE, "weight_decay": DECAY, "momentum": MOMENTUM, "warmup_ratio": WARMUP},
    )
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return encoder, float(json.loads(lines[-1])["samples_per_second"])


def train_lightly(
    data: Path,
    name: str,
    epochs: int,
    seed: int,
    workers: int,
    steps: int | None = None,
    layout: torch.memory_format | None = None,
) -> tuple[nn.Module, float]:
    """The same with lightly's data set, transform and loss, as its examples put them together.

    Args:
        layout: of the weights and images in memory, where it is not the default.
    """
    from lightly.data import LightlyDataset
    from lightly.loss import NTXentLoss
    from lightly.transforms import SimCLRTransform
    from lightly.utils.scheduler import CosineWarmupScheduler

    torch.manual_seed(seed)
    encoder = backbone(name, size=SIZE)
    features: int = encoder.num_features
    head = projector(features, features, DIM, layers=2, last_batch_norm=True, last_affine=False)
    layout = layout or torch.contiguous_format
    model = nn.Sequential(encoder, head).to(memory_format=layout)
    transform = SimCLRTransform(input_size=SIZE, cj_strength=0.5, gaussian_blur=0.0)
    loader = torch.utils.data.DataLoader(
        LightlyDataset(str(data / "train"), transform=transform),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    criterion = NTXentLoss(temperature=TEMPERATURE)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.SGD(groups, lr=RATE * BATCH / 256, momentum=MOMENTUM)
    total = epochs * len(loader)
    schedule = CosineWarmupScheduler(optimiser, warmup_epochs=round(WARMUP * total), max_epochs=total, end_value=0.0)
    done, start = 0, time.perf_counter()
    model.train()
    for _ in range(epochs):
        for views, _, _ in loader:
            z1, z2 = (model(x.contiguous(memory_format=layout)) for x in views)
            loss = criterion(z1, z2)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            done += 1
            if done == steps:
                return encoder, done * BATCH / (time.perf_counter() - start)
    return encoder, done * BATCH / (time.perf_counter() - start)


def knn(encoder: nn.Module, data: Path) -> float:
    encoder = getattr(encoder, "backbone", encoder).eval()
    train, test = (open_images(str(data / part), stored_size=SIZE, labels=True) for part in ("train", "test"))
    h = [embed(encoder, part, prepare=lambda x: resize_eval(x, SIZE)) for part in (train, test)]
    classes = int(train.labels.max()) + 1
    return knn_accuracy(h[0], train.labels, h[1], test.labels, classes=classes).value


def serve(options: argparse.Namespace) -> None:
    """One run, as a line of JSON."""
    name, seed, workers = options.serve[0], *map(int, options.serve[1:])
    torch.set_num_threads(os.cpu_count() or 1)
    if name == "trial":
        found = {"speed": train_lightly(options.data, options.backbone, 1, seed, workers, steps=16)[1]}
    elif name == LAYOUT:  # another order of the same sums: its speed alone is of interest
        found = {
            "speed": train_lightly(options.data, options.backbone, 1, seed, workers, layout=torch.channels_last)[1]
        }
    else:
        with tempfile.TemporaryDirectory() as folder:
            if name == "nearfar":
                encoder, speed = train_nearfar(options.data, options.backbone, options.epochs, seed, Path(folder))
            else:
                encoder, speed = train_lightly(options.data, options.backbone, options.epochs, seed, workers)
            found = {"speed": speed, "knn": knn(encoder, options.data)}
    print("RESULT " + json.dumps(found))


def run(options: argparse.Namespace, name: str, seed: int, workers: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--data", str(options.data), "--epochs", str(options.epochs)]
    command += ["--backbone", options.backbone]
    done = subprocess.run(
        [*command, "--serve", name, str(seed), str(workers)], stdout=subprocess.PIPE, text=True, check=True
    )
    found = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    print(f"{name}, seed {seed}, {workers} workers: {found}", file=sys.stderr)
    result: dict[str, float] = json.loads(found.removeprefix("RESULT "))
    return result


def page(options: argparse.Namespace, found: dict[str, list[dict[str, float]]], trials: dict[int, float]) -> str:
    speed = {name: statistics.median(r["speed"] for r in runs) for name, runs in found.items()}
    accuracy = {name: statistics.mean(r["knn"] for r in found[name]) for name in ("nearfar", "lightly")}
    ratio, gain = speed["nearfar"] / speed["lightly"], accuracy["nearfar"] - accuracy["lightly"]
    tested = len(list((options.data / "test").glob("*/*")))
    error = math.sqrt(2 * accuracy["lightly"] * (1 - accuracy["lightly"]) / (tested * options.seeds))
    rows = [
        f"| {name} | {speed[name]:,.0f} | {accuracy[name]:.1%} | "
        + ", ".join(f"{r['knn']:.1%}" for r in found[name])
        + " |"
        for name in accuracy
    ]
    rows.append(f"| {LAYOUT} | {speed[LAYOUT]:,.0f} | – | one epoch, for its speed |")
    tried = ", ".join(f"{n}: {s:,.0f}/s" for n, s in trials.items())
    return f"""# SimCLR from a folder: nearfar beside lightly

{describe()}.
`python benchmarks/train.py --data {options.data.name}`: {options.epochs} epochs, batch {BATCH},
backbone `{options.backbone}`, {SIZE} px, {options.seeds} seeds, runs taking turns.

| | samples/s | k-NN, mean | of each seed |
|---|---|---|---|
{chr(10).join(rows)}

| target | measured | reached |
|---|---|---|
| at least {TARGET}× lightly's samples/s | {ratio:.2f}× | {"yes" if ratio >= TARGET else "no"} |
| (beside "{LAYOUT}") | {speed["nearfar"] / speed[LAYOUT]:.2f}× | |
| k-NN no lower | {gain:+.1%} (standard error {error:.1%}) | {"yes" if gain >= 0 else "no"} |

Workers of lightly's data loader, tried first: {tried}.

{__doc__.strip().split(chr(10) * 2)[2]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with train/ and test/, a folder per class")
    parser.add_argument("--backbone", default="micro", help="micro, tiny, ...")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "train.md")
    parser.add_argument("--serve", nargs=3, metavar=("CONTENDER", "SEED", "WORKERS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return
    trials = {n: run(options, "trial", 0, n)["speed"] for n in (0, 1, 2)}
    workers = max(trials, key=lambda n: trials[n])
    found: dict[str, list[dict[str, float]]] = {"nearfar": [], "lightly": [], LAYOUT: []}
    for seed in range(options.seeds):
        for name, runs in found.items():
            runs.append(run(options, name, seed, workers))
    text = page(options, found, trials)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
