"""Clustering: k-means of the test features against the classes."""

import torch

from nearfar.evaluation.clustering import agreement, cluster_agreement
from nearfar.evaluation.metrics import resamples, with_interval
from nearfar.evaluation.protocols.protocol import NoSettings, Protocol
from nearfar.evaluation.task import Outcome, Task, arrays
from nearfar.metric_text import MetricStyle


def clustering(task: Task, settings: NoSettings, seed: int) -> Outcome:
    """As many clusters as there are classes."""
    labels = task.test.labels
    clusters, found = cluster_agreement(task.test_features, labels, seed=seed)
    draws: dict[str, list[float]] = {name: [] for name in found}
    for weights in resamples(labels, count=task.bootstrap, seed=seed):
        for w in weights:
            for name, value in agreement(*(x.repeat_interleave(w.long()) for x in (clusters, labels))).items():
                draws[name].append(value)
    metrics = {
        name: with_interval(value, torch.tensor(draws[name]), len(labels), least=-1.0 if name == "ARI" else 0.0)
        for name, value in found.items()
    }
    return Outcome(metrics, arrays(clusters=clusters))


PROTOCOL = Protocol(
    "clustering",
    clustering,
    "k-means against the classes: NMI, ARI, purity",
    "NMI",
    seeded=True,
    title="Clustering",
    metrics={"ARI": MetricStyle(least=-1.0)},
)
