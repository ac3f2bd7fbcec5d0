"""Weighted k-nearest neighbors."""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from nearfar.evaluation.classification import STYLES, classified
from nearfar.evaluation.knn import knn_votes, nearest
from nearfar.evaluation.metrics import accuracy
from nearfar.evaluation.paired import SampleValues
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Task
from nearfar.losses.arguments import l2_normalize
from nearfar.modalities.text.tfidf import sparse_nearest
from nearfar.settings import setting

NEIGHBORS = (1, 5, 20)  # that are reported unless others are given


@dataclass(frozen=True)
class KnnSettings:
    """Protocol knn: the classes of the most similar training samples."""

    k: list[int] | None = setting(
        None, "numbers of neighbors; all metrics for the first; None: 1, 5 and 20, the first by class size", least=1
    )
    temperature: float = setting(0.07, "divides the cosine similarities of the votes", above=0, below=float("inf"))
    search: Literal["tiles", "faiss"] = setting("tiles", "how neighbors are found; both are exact")


def fitted_k(settings: KnnSettings, labels: Tensor) -> KnnSettings:
    """The numbers of neighbors, if none are given, from the (M,) training labels alone: no test result decides.

    First comes the largest of 1, 5 and 20 that is at most the size of a typical (median) class. With more neighbors
    than its class has samples, most votes on a sample must be wrong.

    >>> import torch
    >>> fitted_k(KnnSettings(), torch.arange(4).repeat_interleave(13)).k
    [5, 1, 20]
    """
    if settings.k is not None:
        return settings
    sizes = labels.unique(return_counts=True)[1]
    first = max((k for k in NEIGHBORS if k <= int(sizes.median())), default=1)
    return replace(settings, k=[first, *(k for k in NEIGHBORS if k != first)])


def knn(task: Task, settings: KnnSettings, seed: int) -> Outcome:
    """All metrics for the first k, the accuracy for each."""
    chosen = fitted_k(settings, task.train.labels).k
    assert chosen is not None
    most = min(max(chosen), len(task.train))
    query, keys = task.test_features, task.train_features
    if query.is_sparse:  # rows have length one already
        similarity, index = sparse_nearest(query, keys, k=most)  # (N, most)
    else:
        similarity, index = nearest(l2_normalize(query), l2_normalize(keys), k=most, search=settings.search)
    labels = task.train.labels[index]
    outcome: Outcome | None = None
    for k in dict.fromkeys(min(k, most) for k in chosen):
        scores = knn_votes(
            similarity[:, :k], labels[:, :k], temperature=settings.temperature, classes=task.classes
        )  # (N, C)
        if outcome is None:
            outcome = classified(task, scores, seed)
        outcome.metrics[f"accuracy, k = {k}"] = accuracy(scores, task.test.labels)
        outcome.samples[f"accuracy, k = {k}"] = SampleValues(scores.argmax(1) == task.test.labels)
    assert outcome is not None
    return outcome


PROTOCOL = Protocol(
    "knn",
    knn,
    "weighted k-nearest neighbors",
    "accuracy",
    KnnSettings,
    title="k-NN",
    fit_settings=fitted_k,
    metrics=STYLES,
    verdict="first",
)
