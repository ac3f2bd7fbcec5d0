"""Flipped labels found by nearfar and by cleanlab, on the same embeddings: precision, recall, seconds.

5 % of the labels become another class at random. cleanlab has its default (`CleanLearning` with scikit-learn's logistic
regression, 5 folds) and, as a second row, its filter on the probabilities that ours uses. A data set's own wrong labels
count as false alarms of both. "as many" is the precision of as many samples as were flipped, in each one's order.

    pip install cleanlab
    python benchmarks/label_errors.py train.npz [--rows 3000] [--seeds 3] [--name cifar10] [--out FILE]
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from machine import describe
from nearfar.data.columns import label_column
from nearfar.evaluation import label_errors as ours
from nearfar.evaluation.knn import knn_votes
from nearfar.losses.arguments import l2_normalize
from nearfar.search.files import Embeddings

Found = tuple[Sequence[int], Sequence[int], float]  # doubted rows, all rows with the most doubtful first, seconds


def by_nearfar(x: Tensor, y: Tensor, classes: int) -> Found:
    start = time.process_time()
    found = ours.find_label_errors(x, y).rows.tolist()
    rest = sorted(set(range(len(y))) - set(found))  # what is not doubted has no order
    return found, [*found, *rest], time.process_time() - start


def by_cleanlab(x: Tensor, y: Tensor, classes: int) -> Found:
    from cleanlab.classification import CleanLearning
    from sklearn.linear_model import LogisticRegression

    start = time.process_time()
    issues = CleanLearning(LogisticRegression(max_iter=200), seed=0).find_label_issues(x.numpy(), y.numpy())
    wrong = np.nonzero(issues["is_label_issue"].to_numpy())[0].tolist()
    return wrong, np.argsort(issues["label_quality"].to_numpy()).tolist(), time.process_time() - start


def by_cleanlab_on_our_probabilities(x: Tensor, y: Tensor, classes: int) -> Found:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    start = time.process_time()
    p = ours._probe_probabilities(x, y, classes, 0)
    similarity, places = ours._neighbors(l2_normalize(x), ours.NEIGHBORS)
    p = p + knn_votes(similarity, y[places], temperature=ours.TEMPERATURE, classes=classes)
    values = p.double().numpy() / p.double().numpy().sum(1, keepdims=True)
    wrong = np.nonzero(find_label_issues(y.numpy(), values, n_jobs=1))[0].tolist()
    return wrong, np.argsort(get_label_quality_scores(y.numpy(), values)).tolist(), time.process_time() - start


METHODS = {
    "nearfar": by_nearfar,
    "cleanlab": by_cleanlab,
    "cleanlab's filter, nearfar's probabilities": by_cleanlab_on_our_probabilities,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("embeddings")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--name", default="data")
    parser.add_argument("--out", type=Path, help="the section is added to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = Embeddings(options.embeddings)
    labels, classes = label_column(file.labels() or [])
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[: options.rows]
    x, true = torch.cat([part for _, part in file.pieces()])[rows], labels[rows]
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in METHODS}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        generator = torch.Generator().manual_seed(seed)
        flipped = torch.randperm(len(x), generator=generator)[: len(x) // 20]
        y = true.clone()
        y[flipped] = (y[flipped] + torch.randint(1, len(classes), flipped.shape, generator=generator)) % len(classes)
        planted = set(flipped.tolist())
        for name, method in METHODS.items():
            wrong, order, seconds = method(x, y, len(classes))
            hits = len(planted & set(wrong))
            first = len(planted & set(order[: len(planted)])) / len(planted)
            found[name].append((hits / max(1, len(wrong)), hits / len(planted), first, seconds))
            print(seed, name, *(f"{value:.3f}" for value in found[name][-1]), flush=True)
    lines = [
        f"## {options.name}",
        "",
        f"{len(x):,} samples, {len(classes)} classes, {len(x) // 20} flipped labels; mean of {options.seeds} seeds.",
        "",
        "| | precision | recall | as many | processor seconds |",
        "|---|---|---|---|---|",
    ]
    for name, values in found.items():
        precision, recall, first, seconds = (statistics.mean(column) for column in zip(*values, strict=True))
        lines.append(f"| {name} | {precision:.2f} | {recall:.2f} | {first:.2f} | {seconds:.1f} |")
    text = "\n".join([*lines, "", describe(), "", ""])
    if options.out:
        with options.out.open("a") as out:
            out.write(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
