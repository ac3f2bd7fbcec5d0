"""DenseCL beside MoCo and scratch as starts of a detector: unlabelled pictures, equal processor seconds, then boxes.

    .venv/bin/python benchmarks/dense.py --data bccd [--seconds 120] [--seeds 3] [--epochs 12] [--out FILE]
    .venv/bin/python benchmarks/dense.py --data glyph-scenes:150 --pictures 1000 --view 64

`--data` has boxes with a split of their own, as for detection.py. Each method trains a `tiny` encoder on the pictures
of the training part, or for glyph scenes on as many other scenes as `--pictures` says, for the same processor seconds
of one thread: the number of steps follows from a few steps of both in turn. Then the same FCOS is trained on each
encoder and on the untrained one, seed by seed, by the same settings, and measured on the test part. Nothing was chosen
on it. The encoders are the same for all seeds, which draw pyramid, head and order; the difference from scratch is
paired by seed.
"""

import argparse
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import nearfar
from machine import describe
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.detection import DetectionSettings
from nearfar.methods import METHODS, Batch
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.boxes import find_boxes
from nearfar.modalities.image.data.glyphs import glyph_scenes

OPTIONS = {"momentum": 0.99, "queue_size": 1024, "batch_norm": True}
NAMES = ("moco", "densecl")


def pictures(options: argparse.Namespace) -> Any:
    if options.data.startswith("glyph-scenes"):
        return glyph_scenes(options.pictures, seed=1).dataset.images  # scenes of another seed than the detector's
    return [str(entry.picture) for entry in find_boxes(Path(options.data))["train"]().pictures]


def pretrain(method: str, data: Any, run: Path, steps: int, options: argparse.Namespace) -> float:
    """The processor seconds of a run."""
    start = time.process_time()
    nearfar.train(
        {"path": data, "stored_size": 2 * options.view, "validation": 0.0},
        out=run,
        method=method,
        backbone="tiny",
        image_size=options.view,
        steps=steps,
        batch_size=64,
        options=OPTIONS,
        optimizer={"name": "adamw", "lr": 4e-3},
    )
    return time.process_time() - start


def steps_for(options: argparse.Namespace) -> dict[str, int]:
    """How many steps of each method take the seconds, by steps of both in turn on random pictures."""
    x, index = torch.randn(64, 3, options.view, options.view), torch.arange(64)
    made = {name: METHODS[name](backbone("tiny", size=options.view), features=256, **OPTIONS) for name in NAMES}
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(8):
        for name, method in made.items():
            start = time.process_time()
            method(Batch([x, x + 0.1], index, index)).loss.backward()
            method.after_step(0.5)
            seconds[name].append(time.process_time() - start)
    return {name: round(options.seconds / statistics.median(each[1:])) for name, each in seconds.items()}


def measure(runs: dict[str, Path], options: argparse.Namespace) -> dict[tuple[str, str], list[float]]:
    settings = ProtocolConfig(
        detection=DetectionSettings(size=options.size, epochs=options.epochs, batch_size=8, lr=options.lr)
    )
    found: dict[tuple[str, str], list[float]] = {}
    first, other = NAMES
    names = {"trained": first, "untrained": "scratch"}  # both begin from the same untrained network
    for seed in range(options.seeds):
        given = {"protocols": ["detection"], "seeds": [seed], "settings": settings, "against": [str(runs[other])]}
        for row in nearfar.evaluate(runs[first], options.data, **given).rows:
            found.setdefault((names.get(row.encoder, other), row.metric), []).append(row.value)
        told = {name: round(values[-1], 3) for (name, metric), values in found.items() if metric == "AP"}
        print(seed, told, flush=True)
    return found


def shown(values: list[float]) -> str:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):.1f} ± {100 * error:.1f}"


def page(found: dict[tuple[str, str], list[float]], steps: dict[str, int], options: argparse.Namespace) -> str:
    lines = [
        f"{describe()}",
        "",
        f"`python benchmarks/dense.py --data {Path(options.data).name} --seconds {options.seconds:g} "
        f"--epochs {options.epochs} --seeds {options.seeds} --view {options.view} --size {options.size}`; steps: "
        + ", ".join(f"{name} {count:,}" for name, count in steps.items()),
        "",
        "| start | AP | AP50 | AP75 | AP over scratch, of each seed |",
        "|---|---|---|---|---|",
    ]
    for name in ("scratch", *NAMES):
        gains = [a - b for a, b in zip(found[name, "AP"], found["scratch", "AP"], strict=True)]
        cells = [shown(found[name, metric]) for metric in ("AP", "AP50", "AP75")]
        told = "" if name == "scratch" else f"{shown(gains)}: {', '.join(f'{100 * gain:+.1f}' for gain in gains)}"
        lines.append(f"| {name} | {' | '.join(cells)} | {told} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="boxes with a split of their own, or glyph-scenes:N")
    parser.add_argument("--pictures", type=int, default=1000, help="glyph scenes without boxes")
    parser.add_argument("--seconds", type=float, default=120.0, help="processor seconds of each method")
    parser.add_argument("--view", type=int, default=96, help="pixels of the views")
    parser.add_argument("--size", type=int, default=256, help="pixels of the longer side for the detector")
    parser.add_argument("--epochs", type=int, default=12, help="of the detector")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), pictures(options)
        steps = steps_for(options)
        print(steps, flush=True)
        runs = {method: folder / method for method in NAMES}
        for method, run in runs.items():
            print(method, f"{pretrain(method, data, run, steps[method], options):.0f} s", flush=True)
        text = page(measure(runs, options), steps, options)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
