"""k-NN classification beside scikit-learn and lightly: time and extra memory, in one run.

    .venv-bench/bin/python benchmarks/evaluate.py               # 50,000 × 10,000, D = 512, into results/evaluate.md
    .venv-bench/bin/python benchmarks/evaluate.py --train 2000 --test 500 --repeats 2 --out /tmp/evaluate.md   # a look

Every contender has a process of its own; the processes take turns, so that the machine's moods fall on all alike.
All classify the same test rows by the k = 20 nearest training rows by cosine: nearfar and lightly with the votes
exp(cosine / 0.07), nearfar and scikit-learn with equal votes. Predictions are compared before anything is timed.
lightly's `knn_predict` is called for 256 rows at a time, as its own callers do, and for all at once.
"""

import argparse
import json
import os
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

from worker import Worker

RESULTS = Path(__file__).parent / "results"
K, TEMPERATURE, CLASSES = 20, 0.07, 10
AGREE = 0.999  # share of equal predictions: rounding may turn a near tie


def data(train: int, test: int, features: int):
    """Unit rows around a centre for each class, and labels."""
    import torch
    import torch.nn.functional as F

    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, features, generator=generator)
    parts = []
    for rows in (train, test):
        labels = torch.randint(CLASSES, (rows,), generator=generator)
        z = 0.25 * centres[labels] + torch.randn(rows, features, generator=generator)
        parts += [F.normalize(z, dim=1), labels]
    return parts


# Contenders: each gives the work that predicts the class of every test row.


def nearfar_weighted(train: int, test: int, features: int):
    from nearfar.evaluation.knn import knn_predict

    x, labels, y, _ = data(train, test, features)
    return lambda: knn_predict(x, labels, y, k=K, temperature=TEMPERATURE, classes=CLASSES).argmax(1)


def nearfar_equal(train: int, test: int, features: int):
    from nearfar.evaluation.knn import knn_predict

    x, labels, y, _ = data(train, test, features)
    return lambda: knn_predict(x, labels, y, k=K, temperature=None, classes=CLASSES).argmax(1)


def lightly_batches(train: int, test: int, features: int, batch: int = 256):
    import torch

    from nearfar import _torchvision  # noqa: F401, before lightly, which imports torchvision

    from lightly.utils.benchmarking import knn_predict  # isort: skip

    x, labels, y, _ = data(train, test, features)
    bank = x.T.contiguous()

    def work():
        parts = [knn_predict(rows, bank, labels, CLASSES, knn_k=K, knn_t=TEMPERATURE)[:, 0] for rows in y.split(batch)]
        return torch.cat(parts)

    return work


def lightly_at_once(train: int, test: int, features: int):
    return lightly_batches(train, test, features, batch=test)


def scikit_learn(train: int, test: int, features: int):
    import torch
    from sklearn.neighbors import KNeighborsClassifier

    x, labels, y, _ = data(train, test, features)
    model = KNeighborsClassifier(K, metric="cosine", algorithm="brute", n_jobs=-1).fit(x.numpy(), labels.numpy())
    rows = y.numpy()
    return lambda: torch.from_numpy(model.predict(rows))


CONTENDERS = {
    "nearfar": nearfar_weighted,
    "lightly, 256 rows at a time": lightly_batches,
    "lightly, all at once": lightly_at_once,
    "nearfar, equal votes": nearfar_equal,
    "scikit-learn, equal votes": scikit_learn,
}
RIVALS = {  # whose predictions must be whose
    "lightly, 256 rows at a time": "nearfar",
    "lightly, all at once": "nearfar",
    "scikit-learn, equal votes": "nearfar, equal votes",
}


def serve(name: str, train: int, test: int, features: int) -> None:
    """Answer "memory", "check" and "time" on the standard input."""
    from machine import extra_memory

    CONTENDERS[name](200, 50, features)()  # libraries and threads are there before memory is read
    work = CONTENDERS[name](train, test, features)

    def seconds() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    orders = {"memory": lambda: extra_memory(work), "check": lambda: work().tolist(), "time": seconds}
    for line in sys.stdin:
        print(json.dumps(orders[line.strip()]()), flush=True)


def measure(numbers: list[int], repeats: int) -> dict[str, dict[str, float]]:
    """Memory first, in the fresh process; then agreement; then times, in turns."""
    workers = {name: Worker(__file__, name, *numbers) for name in CONTENDERS}
    memory = {name: worker.ask("memory") for name, worker in workers.items()}
    predicted = {name: worker.ask("check") for name, worker in workers.items()}
    agreed = {}
    for name, ours in RIVALS.items():
        equal = sum(a == b for a, b in zip(predicted[name], predicted[ours], strict=True))
        agreed[name] = equal / len(predicted[name])
        if agreed[name] < AGREE:
            raise SystemExit(
                f"{name} and {ours} agree on {agreed[name]:.2%} of the rows: a quick wrong answer is no rival"
            )
    times: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(repeats):
        for name, worker in workers.items():
            times[name].append(worker.ask("time"))
    for worker in workers.values():
        worker.close()
    return {
        name: {"seconds": statistics.median(times[name]), "memory": memory[name], "agreed": agreed.get(name, 1.0)}
        for name in workers
    }


def page(numbers: list[int], repeats: int, found: dict[str, dict[str, float]]) -> str:
    from machine import describe

    train, test, features = numbers
    rows = []
    for name, row in found.items():
        ours = found["nearfar, equal votes" if name.endswith("equal votes") else "nearfar"]["seconds"]
        ratio = "1" if name.startswith("nearfar") else f"{row['seconds'] / ours:.2f}"
        agreed = f"{row['agreed']:.2%}" if name in RIVALS else "–"
        rows.append(f"| {name} | {row['seconds']:.2f} s | {ratio} | {row['memory']:,.0f} MiB | {agreed} |")
    quickest = min(RIVALS, key=lambda name: found[name]["seconds"])
    ours = found["nearfar, equal votes" if quickest.endswith("equal votes") else "nearfar"]["seconds"]
    speed, memory = found[quickest]["seconds"] / ours, found["nearfar"]["memory"]
    once_more, matrix = 4 * features * (train + test) / 2**20, 4 * train * test / 2**20  # MiB
    flat = "yes" if memory <= once_more + 64 else "no"
    versions = ", ".join(f"{name} {version(name)}" for name in ("scikit-learn", "lightly"))
    return f"""# k-NN classification: {train:,} training rows, {test:,} test rows, D = {features}, k = {K}

`python benchmarks/evaluate.py` on {describe()}; {versions}; threads: {os.environ.get("OMP_NUM_THREADS", "all")}.
Medians of {repeats} interleaved repeats, each contender in a process of its own; predictions compared first.

| target | measured | reached |
|---|---|---|
| at least as fast as the quickest peer | {speed:.2f}× ({quickest}) | {"yes" if speed >= 1 else "no"} |
| memory: the rows once more and 64 MiB; the matrix would be {matrix:,.0f} MiB | {memory:,.0f} MiB | {flat} |

| contender | time | times nearfar's | extra memory | same class as nearfar |
|---|---|---|---|---|
{chr(10).join(rows)}

nearfar normalises the rows itself; the others are given unit rows. Extra memory is the rise of resident memory at its
peak over what the process held before, normalised copies of the rows included.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=50_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "evaluate.md")
    parser.add_argument("--serve", nargs=4, metavar=("NAME", "TRAIN", "TEST", "FEATURES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, *numbers = options.serve
        serve(name, *map(int, numbers))
        return
    numbers = [options.train, options.test, options.features]
    found = measure(numbers, options.repeats)
    text = page(numbers, options.repeats, found)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
