"""What learns most in the same processor seconds: each setting alone, changed from the automatic ones.

    .venv/bin/python benchmarks/learning.py --data cifar10 [--seconds 150] [--seeds 3] [--only default sgd adamw]
        [--methods simclr moco byol] [--part validation | test] [--out FILE]

`--data` holds `train/` and `test/` with a folder for each class. A run is what `nearfar train --data cifar10/train`
would be, with one thread: a trial chooses the views by the labels, the first steps are timed in processor seconds, the
number of steps that fit is fixed, and trial, views, losses and optimizer are all inside. Settings are chosen with
`--part validation`: a sixth of the training pictures, neither trained on nor a neighbour; `--part test` measures the
chosen ones, once, with all training pictures as neighbours. The number is weighted k-NN (k = 20, cosine, temperature
0.07) of the encoder's features and of whitened ones, as a run ends with, beside the untrained encoder.
"""

import argparse
import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import nearfar.methods.simclr
from machine import describe
from nearfar.config import TrainConfig, completed
from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import embed
from nearfar.evaluation.knn import knn_accuracy
from nearfar.losses import decoupled
from nearfar.nn.ema import ema_update
from nearfar.nn.whitening import fit_transform
from nearfar.settings import build, overlaid
from nearfar.training.build_method import lay_out
from nearfar.training.lightning_module import Pretraining, Steps
from nearfar.training.optimizers import pretrained_factor, rate_factor, set_rates
from nearfar.training.setup import TrainingSetup
from nearfar.training.view_trial import choose_view_factors

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "earlier recipe": {
        "backbone": "tiny",
        "batch_size": 256,
        "precision": "32",
        "views": {"preset": "simclr", "count": 2},
        "options": {"temperature": 0.5},
        "optimizer": {"name": "adamw", "lr": 0.002},
    },
    "sgd": {"optimizer": {"name": "sgd", "lr": 0.06}},
    "adamw": {"optimizer": {"name": "adamw", "lr": 0.002}},
    "tiny": {"backbone": "tiny"},
    "float32": {"precision": "32"},
    "batch 32": {"batch_size": 32},
    "batch 128": {"batch_size": 128},
    "temperature 0.2": {"options": {"temperature": 0.2}},
    "temperature 0.5": {"options": {"temperature": 0.5}},
    "crops from 0.08": {"views": {"preset": "simclr", "count": 4}},
    "2 views of 128": {"views": {"preset": "photos", "count": 2}, "batch_size": 128},
    "8 views of 32": {"views": {"preset": "photos", "count": 8}, "batch_size": 32},
    "2 + 4 local views of 64": {"views": {"preset": "photos", "count": 2, "local": 4}},
    "mild colors": {"views": {"preset": "photos", "color": "mild"}},
    "colors kept": {"views": {"preset": "photos", "color": "keep"}},
    "colors varied": {"views": {"preset": "photos", "color": "vary"}},
    "not mirrored": {"views": {"preset": "photos", "color": "vary", "orientation": "keep"}},
    "quarter turns": {"views": {"preset": "photos", "color": "vary", "orientation": "rotate"}},
    "crops from 0.5": {"views": {"preset": "photos", "color": "vary", "scale": "keep"}},
    "learning rate 0.01": {"optimizer": {"lr": 0.01}},
    "learning rate 0.04": {"optimizer": {"lr": 0.04}},
    "linear schedule": {"optimizer": {"schedule": "linear"}},
    "head of 1 layer": {"options": {"layers": 1}},
    "head of 3 layers": {"options": {"layers": 3}},
    "temperature from 0.5 to 0.1": {},
    "EMA weights": {},
    "three quarters of the pixels first": {},
    "decoupled loss": {},
}
EARLIER = {  # of the methods' recipes before automatic settings, without what they share
    "moco": {"options": {"temperature": 0.2, "momentum": 0.99, "queue_size": 2048, "batch_norm": True}},
    "byol": {"batch_size": 64, "options": {"momentum": 0.99, "dim": 128, "hidden": 512}, "optimizer": {"lr": 0.004}},
    "simsiam": {"batch_size": 128, "options": {"dim": 256, "hidden": 64}},
    "instdisc": {
        "batch_size": 64,
        "options": {"temperature": 0.1, "proximal": 0.0, "noise": 2048, "held_after": 1_000_000},
        "optimizer": {"lr": 0.006},
    },
    "barlow_twins": {"options": {"dim": 256, "hidden": 256}},
    "vicreg": {"options": {"dim": 256, "hidden": 256}},
    "nnclr": {"options": {"queue_size": 2048, "dim": 128, "hidden": 256, "predictor_hidden": 512}},
}


# What no setting does: called after each step, and once before the first, with the part of the run that is done.
Hook = Callable[[TrainingSetup, float], None]


def falling_temperature(setup: TrainingSetup, progress: float) -> None:
    setup.method.temperature = 0.1 + 0.2 * (1 + math.cos(math.pi * progress))  # type: ignore[assignment]


class EMAWeights:
    """The encoder that is measured is a moving average of the trained one."""

    def __init__(self) -> None:
        self.average: torch.nn.Module | None = None

    def __call__(self, setup: TrainingSetup, progress: float) -> None:
        if self.average is None:
            self.average = copy.deepcopy(setup.method.encoder)
        ema_update(self.average, setup.method.encoder, 0.98)
        if progress == 1:
            setup.method.encoder.load_state_dict(self.average.state_dict())


def small_first(setup: TrainingSetup, progress: float) -> None:
    size = setup.config.image_size * 3 // 4 if progress < 0.6 else setup.config.image_size
    recipes = setup.modality.recipes  # type: ignore[attr-defined]
    if recipes[0].size != size:
        setup.modality.forget_buffers()
        setup.modality.recipes = tuple(replace(view, size=size) for view in recipes)  # type: ignore[attr-defined]


def use_decoupled(setup: TrainingSetup, progress: float) -> None:
    """Each pair of views by the decoupled loss, in place of NT-Xent over all."""

    def loss(views: list[Tensor], local: list[Tensor], *, temperature: float, ids: Tensor) -> Tensor:
        pairs = [(a, b) for i, a in enumerate(views) for b in views[:i]]
        return torch.stack([decoupled(a, b, temperature=temperature, ids=ids) for a, b in pairs]).mean()

    nearfar.methods.simclr.nt_xent_views = loss if progress < 1 else NT_XENT  # type: ignore[assignment]


NT_XENT = nearfar.methods.simclr.nt_xent_views
HOOKS: dict[str, Callable[[], Hook]] = {
    "temperature from 0.5 to 0.1": lambda: falling_temperature,
    "EMA weights": EMAWeights,
    "three quarters of the pixels first": lambda: small_first,
    "decoupled loss": lambda: use_decoupled,
}
COST = {
    "three quarters of the pixels first": 0.6 + 0.4 * (4 / 3) ** 2
}  # mean seconds of a step, relative to the first ones


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--methods", nargs="+", default=["simclr"])
    parser.add_argument("--part", choices=["validation", "test"], default="validation")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for method in options.methods:
        for name in options.only:
            results = [
                run(options.data, method, name, seed, options.seconds, options.part) for seed in range(options.seeds)
            ]
            lines.append(row(method, name, results))
            print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text(page(options, lines), encoding="utf-8")


def settings(method: str, variant: str) -> dict[str, Any]:
    """A variant's settings; those of the earlier recipe differ by method."""
    found = VARIANTS[variant]
    if variant == "earlier recipe" and method in EARLIER:
        found = overlaid({**found, "options": {}}, EARLIER[method])
    return found


def run(data: Path, method: str, variant: str, seed: int, seconds: float, part: str) -> dict[str, float]:
    """One run of so many processor seconds: accuracies, steps and the seconds it took."""
    held_out = {"validation": 1 / 6} if part == "validation" else {"test": str(data / "test"), "validation": 0.0}
    given: dict[str, Any] = {
        "data": {"path": str(data / "train"), "labels": True, **held_out},
        "method": method,
        "seed": seed,
    }
    given |= {"time": f"{seconds}s", **settings(method, variant)}
    config: TrainConfig = build(TrainConfig, completed(given), "train")
    config = replace(config, device="cpu")
    setup = TrainingSetup(config, Console(quiet=True))
    other = setup.validation if part == "validation" else setup.test
    assert other is not None
    untrained = accuracy(setup, other)
    start = time.process_time()
    choose_view_factors(setup, Path("unused"), Console(quiet=True))
    spent = time.process_time() - start
    hook = HOOKS[variant]() if variant in HOOKS else None
    used, steps = train(setup, seconds - spent, hook, COST.get(variant, 1.0))
    found = {"k-NN": accuracy(setup, other), "whitened": accuracy(setup, other, whiten=True), "untrained": untrained}
    return {**found, "steps": steps, "seconds": spent + used}


def train(setup: TrainingSetup, seconds: float, hook: Hook | None = None, cost: float = 1.0) -> tuple[float, int]:
    """Train for so many processor seconds, the first steps of which are timed to fix the number of all."""
    config, ids = setup.config, setup.modality.ids(setup.train)
    lay_out(setup.method, config)
    labels = setup.method_labels
    module = Pretraining(
        setup.method, config, setup.modality, setup.train, total=10**6, ids=ids, labels=labels, checkpoint=str
    )
    optimizer = module.configure_optimizers()
    setup.method.train()
    if hook is not None:
        hook(setup, 0.0)
    start, timed = time.process_time(), 8
    for number, index, samples in Steps(setup.train, setup.loader, 0, 10**6):
        if number == 2:
            begun = time.process_time()  # after what is done once
        if number == timed:
            each = (time.process_time() - begun) / (timed - 2)
            module.total = timed + int((seconds - (time.process_time() - start)) / (each * cost))
        if number >= module.total:
            break
        factor = rate_factor(number, module.total, config.optimizer, 1)
        set_rates(optimizer, factor, pretrained_factor(number, module.total, config.optimizer, config.adapt, 1))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            loss = module.training_step((number, index, samples), 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        module.done += 1
        setup.method.after_step(module.done / module.total)
        if hook is not None:
            hook(setup, module.done / module.total)
    return time.process_time() - start, module.done


def accuracy(setup: TrainingSetup, other: Dataset, *, whiten: bool = False) -> float:
    train, labels = features(setup, setup.train)
    test, truth = features(setup, other)
    if whiten and (transform := fit_transform(train, "whitened")) is not None:
        train, test = transform(train), transform(test)
    return 100 * knn_accuracy(train, labels, test, truth).value


def features(setup: TrainingSetup, data: Dataset) -> tuple[Tensor, Tensor]:
    assert data.labels is not None
    encoder = setup.method.encoder.eval()
    found = embed(encoder, data, prepare=setup.modality.prepare)
    encoder.train()
    return found, data.labels


def row(method: str, name: str, results: list[dict[str, float]]) -> str:
    found = [each["k-NN"] for each in results]
    spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
    of = {key: statistics.mean(each[key] for each in results) for key in results[0]}
    return (
        f"| {method} | {name} | {of['k-NN']:.1f}{spread} | {of['whitened']:.1f} | {of['untrained']:.1f} "
        f"| {of['steps']:.0f} | {of['seconds']:.0f} |"
    )


def page(options: argparse.Namespace, lines: list[str]) -> str:
    where = "the test part" if options.part == "test" else "a sixth of the training pictures, held out"
    how = (
        f"{describe()}. `python benchmarks/learning.py --data {options.data.name} --seconds {options.seconds:.0f} "
        f"--seeds {options.seeds} --part {options.part}`, one thread; k-NN (k = 20) on {where}, mean of "
        f"{options.seeds} seeds and their standard deviation.\n"
    )
    return "\n".join(
        [
            f"# Learning in {options.seconds:.0f} processor seconds\n",
            how,
            "| method | setting | k-NN % | whitened % | untrained % | steps | seconds |",
            "|---|---|---|---|---|---|---|",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    main()
