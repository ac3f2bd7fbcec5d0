"""Object detection from a MoCo backbone that saw nothing but the training pictures, beside the same from scratch.

    .venv/bin/python benchmarks/detection.py --data bccd [--pretrain 400] [--epochs 30] [--seeds 3] [--out FILE]
    .venv/bin/python benchmarks/detection.py --data bccd --weights package:efficientnet-lite0 --adapt 120s --epochs 8

`--data` has boxes with a split of their own: COCO's JSON or VOC's XML, as `nearfar evaluate --protocol detection` takes
them. MoCo v2 trains a `tiny` encoder on the pictures of the training part, without their boxes. On it, and on the same
encoder untrained, the same FCOS is trained with the same settings, seed by seed, and measured on the test part, which
nothing was chosen on. With `--weights` there are three: the weights as they are, the same adapted on the training
pictures by SimCLR for so many seconds, and the same network from scratch. AP is pycocotools'. A seed draws pyramid,
head, order and augmentation; the encoders are the same for all seeds. The intervals of a row hold the images
(bootstrap) and the seeds; the difference is paired by seed.
"""

import argparse
import csv
import math
import statistics
import tempfile
import time
from pathlib import Path

import nearfar
from machine import describe
from nearfar.evaluation.metrics import Estimate, over_seeds
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.detection import DetectionSettings
from nearfar.modalities.image.data.boxes import find_boxes

MOMENTUM, QUEUE, BATCH = 0.99, 128, 64


NAMES = {"trained": "pretrained", "untrained": "from scratch", "random": "from scratch"}


def pretrain(options: argparse.Namespace, run: Path, table: Path) -> None:
    """MoCo on the training pictures alone, or given weights adapted to them."""
    pictures = [entry.picture for entry in find_boxes(options.data)["train"]().pictures]
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["path"], *([str(picture)] for picture in pictures)])
    if options.weights:
        data = {"path": table, "validation": 0.0}
        nearfar.train(data, out=run, weights=options.weights, image_size=options.view, time=options.adapt)
        return
    nearfar.train(
        {"path": table, "stored_size": 2 * options.view, "validation": 0.0},
        out=run,
        method="moco",
        backbone=options.backbone,
        image_size=options.view,
        epochs=options.pretrain,
        batch_size=min(BATCH, len(pictures)),
        options={"momentum": MOMENTUM, "queue_size": QUEUE, "batch_norm": True},
        optimizer={"name": "adamw", "lr": 4e-3},
    )


def measure(options: argparse.Namespace, run: Path) -> tuple[dict[tuple[str, str], list[Estimate]], int]:
    """Estimates of every seed by (encoder, metric), and the number of test pictures."""
    settings = ProtocolConfig(
        detection=DetectionSettings(
            head=options.head, size=options.size, epochs=options.epochs, lr=options.lr, batch_size=options.batch
        )
    )
    found: dict[tuple[str, str], list[Estimate]] = {}
    tested = 0
    for seed in range(options.seeds):
        results = nearfar.evaluate(run, options.data, protocols=["detection"], seeds=[seed], settings=settings)
        for row in results.rows:
            estimate = Estimate(row.value, row.low, row.high, row.n)
            found.setdefault((row.encoder, row.metric), []).append(estimate)
            tested = row.n
        told = ", ".join(f"{r.encoder} {r.metric} {r.value:.3f}" for r in results.rows if r.metric == "AP")
        print(f"seed {seed}: {told}", flush=True)
    return found, tested


def shown(estimates: list[Estimate]) -> str:
    value, low, high, _ = over_seeds(estimates)
    return (
        f"{value:.1%}" if low is None or high is None else f"{value:.1%} ({max(0.0, low):.1%} to {min(1.0, high):.1%})"
    )


def page(
    options: argparse.Namespace, found: dict[tuple[str, str], list[Estimate]], counts: tuple[int, int], minutes: float
) -> str:
    metrics = list(dict.fromkeys(metric for _, metric in found))
    names = {**NAMES, "trained": "adapted", "untrained": "as they are"} if options.weights else NAMES
    encoders = [encoder for encoder in names if (encoder, "AP") in found]
    rows = []
    for metric in metrics:
        scratch = found[encoders[-1], metric]
        cells = [shown(found[encoder, metric]) for encoder in encoders]
        for encoder in encoders[:-1]:
            gains = [t.value - s.value for t, s in zip(found[encoder, metric], scratch, strict=True)]
            error = f" ± {statistics.stdev(gains) / math.sqrt(len(gains)):.1%}" if len(gains) > 1 else ""
            cells += [f"{statistics.mean(gains):+.1%}{error}", ", ".join(f"{gain:+.1%}" for gain in gains)]
        rows.append(f"| {metric} | {' | '.join(cells)} |")
    head = ["", *(names[encoder] for encoder in encoders)]
    for encoder in encoders[:-1]:
        head += [f"{names[encoder]} over scratch, ± its standard error", "of each seed"]
    start = (
        f"Start: {options.weights}; adapted for {options.adapt} at {options.view} px."
        if options.weights
        else f"""MoCo v2 (momentum {MOMENTUM}, queue {QUEUE}, batch-norm in the head): backbone `{options.backbone}`,
views of {options.view} px, {options.pretrain} epochs."""
    )
    kind = "given" if options.weights else "MoCo"
    return f"""# Detection from a {kind} backbone, beside the same detector from scratch

{describe()}.
`python benchmarks/detection.py --data {options.data.name}`: {counts[0]} training and {counts[1]} test pictures.
{start}
Detector: {options.head}, longer side {options.size} px,
{options.epochs} epochs, batch {options.batch}, rate {options.lr:g}; {options.seeds} seeds.
All took {minutes:.0f} minutes.

| {" | ".join(head)} |
|{"---|" * len(head)}
{chr(10).join(rows)}

{__doc__.strip().split(chr(10) * 2)[2]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="pictures with boxes and a split of their own")
    parser.add_argument("--run", type=Path, help="where MoCo's run goes; one that is there is used again")
    parser.add_argument("--backbone", default="tiny")
    parser.add_argument("--weights", help="given weights in place of MoCo, such as package:efficientnet-lite0")
    parser.add_argument("--adapt", default="120s", help="length of their adaptation to the training pictures")
    parser.add_argument("--view", type=int, default=96, help="pixels of MoCo's views")
    parser.add_argument("--pretrain", type=int, default=400, help="epochs of MoCo")
    parser.add_argument("--head", choices=("fcos", "retinanet"), default="fcos")
    parser.add_argument("--size", type=int, default=256, help="pixels of the longer side for the detector")
    parser.add_argument("--epochs", type=int, default=30, help="of the detector")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "detection.md")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = options.run or folder / "run"
        if not run.exists():
            pretrain(options, run, folder / "train.csv")
        found, tested = measure(options, run)
    trained_on = len(find_boxes(options.data)["train"]().pictures)
    text = page(options, found, (trained_on, tested), (time.perf_counter() - start) / 60)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
