"""Labels chosen by `nearfar select` beside labels drawn at random: the accuracy of a linear probe on n of them.

Each draw takes two thirds of the pool; every strategy and the random draw select n samples of the same two thirds, and
a probe on their labels is measured on the test file. The differences are paired, with 95 % intervals (Student's t). No
label is used to select. --half first chooses among strategies, --half second reports.

    nearfar embed package:efficientnet-lite0 cifar10/train --labels -o train.npz    # the same for the test files
    python benchmarks/selection.py train.npz test.npz [--half second] [--draws 10] [--n 50 100 500] [--name cifar10]
    python benchmarks/selection.py --speed 100000
"""

import argparse
import math
import resource
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from machine import describe
from nearfar.data.columns import label_column
from nearfar.evaluation.linear import linear_probe
from nearfar.search.files import Embeddings
from nearfar.selection import select

STRATEGIES = ("facility", "typical", "k-center")
STRENGTH = 0.01  # of the probe, fixed: too few labels to choose one by
T95 = {4: 3.182, 5: 2.776, 10: 2.262, 20: 2.093}  # by draws


def read(path: str, classes: list[str] | None = None) -> tuple[Tensor, Tensor, list[str]]:
    file = Embeddings(path)
    labels, classes = label_column(file.labels() or [], classes)
    return torch.cat([x for _, x in file.pieces()]), labels, classes


def accuracy(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor) -> float:
    """Of a probe that knows the classes that were selected."""
    present, own = labels.unique(return_inverse=True)
    if len(present) == 1:
        return float((truth == present[0]).float().mean())
    probe = linear_probe(train, own, classes=len(present), strengths=[STRENGTH])
    return float((present[probe(test).argmax(1)] == truth).float().mean())


def compare(options: argparse.Namespace) -> list[str]:
    x, labels, classes = read(options.pool)
    test, truth, _ = read(options.test, classes)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    middle = len(x) // 2
    pool = {"all": order, "first": order[:middle], "second": order[middle:]}[options.half]
    draws = [
        pool[torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))[: 2 * len(pool) // 3]]
        for seed in range(options.draws)
    ]
    lines = [
        f"## {options.name}",
        "",
        f"{len(pool):,} samples in the pool, {len(test):,} to test, {len(classes)} classes, {options.draws} draws.",
        "",
        "| n | random | " + " | ".join(f"{name}, difference" for name in STRATEGIES) + " |",
        "|---|---|" + "---|" * len(STRATEGIES),
    ]
    for n in options.n:
        found: dict[str, list[float]] = {}
        for name in ("random", *STRATEGIES):
            for seed, rows in enumerate(draws):
                chosen = rows[torch.tensor(select(x[rows], n, strategy=name, seed=seed, progress=False).rows)]
                found.setdefault(name, []).append(accuracy(x[chosen], labels[chosen], test, truth))
        cells = []
        for name in STRATEGIES:
            paired = [100 * (a - b) for a, b in zip(found[name], found["random"], strict=True)]
            width = T95[options.draws] * statistics.stdev(paired) / math.sqrt(len(paired))
            cells.append(f"{statistics.mean(paired):+.1f} ± {width:.1f}")
        lines.append(f"| {n} | {100 * statistics.mean(found['random']):.1f} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def speed(count: int) -> list[str]:
    """Seconds of the processor and the largest memory for 500 of so many samples of 1,280 numbers."""
    generator = torch.Generator().manual_seed(0)
    x = torch.empty(count, 1280)
    centers = torch.randn(200, 1280, generator=generator)
    for start in range(0, count, 4096):
        part = x[start : start + 4096]
        part.copy_(centers[torch.randint(200, (len(part),), generator=generator)])
        part += torch.randn(part.shape, generator=generator)
    x = F.normalize(x, dim=1)
    lines = [
        f"## 500 of {count:,}",
        "",
        "| strategy | processor seconds | largest memory of the process, GB |",
        "|---|---|---|",
    ]
    for name in STRATEGIES:
        start = time.process_time()
        select(x, 500, strategy=name, progress=False)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        lines.append(f"| {name} | {time.process_time() - start:.0f} | {memory:.1f} |")
        print(lines[-1], flush=True)
    return [*lines, "", f"The embeddings alone are {count * 1280 * 4 / 2**30:.2f} GB.", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool", nargs="?")
    parser.add_argument("test", nargs="?")
    parser.add_argument("--half", choices=["all", "first", "second"], default="all")
    parser.add_argument("--draws", type=int, choices=sorted(T95), default=10)
    parser.add_argument("--n", type=int, nargs="+", default=[50, 100, 500])
    parser.add_argument("--name", default="pool")
    parser.add_argument("--speed", type=int)
    parser.add_argument("--out", type=Path, help="the section is added to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        lines = speed(options.speed) if options.speed else compare(options)
    text = "\n".join([*lines, describe(), "", ""])
    if options.out:
        with options.out.open("a") as file:
            file.write(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
