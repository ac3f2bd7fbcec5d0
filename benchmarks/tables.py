"""SCARF on tables that come with scikit-learn: nearest neighbors and a linear probe beside scaled columns.

    .venv/bin/python benchmarks/tables.py [--seconds 15] [--seeds 3] [--out FILE]

Half of the rows, without labels, train the encoder by the defaults of `nearfar train --method scarf`; the others are
the test. Labels of the training half are for the readout alone: k-NN with 5 neighbors by cosine, and logistic
regression. Nothing was chosen by these numbers. One thread; the same processor seconds for each.
"""

import argparse
import math
import statistics
import sys
import time
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from machine import describe
from nearfar.config import TrainConfig, build, completed
from nearfar.methods import SCARF, Batch
from nearfar.modalities.table.data import TableDataset
from nearfar.modalities.table.modality import TableModality

SETS = {"breast_cancer": load_breast_cancer, "digits": load_digits, "wine": load_wine}


def scores(train: Tensor, test: Tensor, labels: Tensor, test_labels: Tensor) -> tuple[float, float]:
    """Accuracies of neighbors and of the probe."""
    neighbors = KNeighborsClassifier(5, metric="cosine").fit(train.numpy(), labels.numpy())
    probe = LogisticRegression(max_iter=2000).fit(train.numpy(), labels.numpy())
    return tuple(float(each.score(test.numpy(), test_labels.numpy())) for each in (neighbors, probe))  # type: ignore[return-value]


def run(name: str, seed: int, seconds: float) -> dict[str, tuple[float, float]]:
    made = SETS[name]()
    values, labels = torch.as_tensor(made.data).float(), torch.as_tensor(made.target)
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    half, rest = order[: len(order) // 2], order[len(order) // 2 :]
    header = [str(i) for i in range(values.shape[1])]
    data = TableDataset(values[half], header, [False] * len(header))
    modality = TableModality(build(TrainConfig, completed({"data": "rows.npz", "method": "scarf"}), "train"))
    config = modality.fit(data)
    torch.manual_seed(seed)
    encoder = modality.encoder()
    inputs = [modality.prepare(part) for part in (values[half], values[rest])]
    found = {"raw": scores(*inputs, labels[half], labels[rest])}
    found["untrained"] = scores(*embedded(encoder, inputs), labels[half], labels[rest])
    train(encoder, modality, data, config, seed, seconds)
    found["trained"] = scores(*embedded(encoder, inputs), labels[half], labels[rest])
    return found


def train(
    encoder: nn.Module, modality: TableModality, data: TableDataset, config: TrainConfig, seed: int, seconds: float
) -> None:
    method = SCARF(encoder, features=256)
    rate = config.optimizer.lr or 1e-3
    optimizer = torch.optim.AdamW(method.parameters(), lr=rate, weight_decay=0.05)
    start, step, shuffle = time.process_time(), 0, torch.Generator().manual_seed(seed)
    while (used := time.process_time() - start) < seconds:
        index = torch.randperm(len(data), generator=shuffle)[: config.batch_size]
        views = modality.views(data.fetch(index), data, index, seed=seed, step=step)
        optimizer.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * used / seconds))
        loss = method(Batch(views, index, index)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1


@torch.no_grad()
def embedded(encoder: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    return [encoder(x) for x in inputs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = "| table | k-NN, trained | untrained | scaled columns | probe, trained | untrained | scaled columns |"
    lines = [describe(), "", f"`{' '.join(['python', *sys.argv])}`", "", head, "|---|---|---|---|---|---|---|"]
    for name in SETS:
        found = [run(name, seed, options.seconds) for seed in range(options.seeds)]
        cells = [
            f"{100 * statistics.mean(each[who][what] for each in found):.1f} %"
            for what in (0, 1)
            for who in ("trained", "untrained", "raw")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], file=sys.stderr, flush=True)
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
