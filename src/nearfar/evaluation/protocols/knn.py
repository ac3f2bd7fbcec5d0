"""Weighted k-nearest neighbors."""

from dataclasses import dataclass
from typing import Literal

from nearfar.evaluation.classification import classified
from nearfar.evaluation.knn import knn_votes, nearest
from nearfar.evaluation.metrics import accuracy
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Task
from nearfar.losses.arguments import l2_normalize
from nearfar.modalities.text.tfidf import sparse_nearest
from nearfar.settings import setting


@dataclass(frozen=True)
class KnnSettings:
    """Protocol knn: the classes of the most similar training samples."""

    k: list[int] = setting([20, 1, 5, 200], "numbers of neighbors; all metrics for the first", least=1)
    temperature: float = setting(0.07, "divides the cosine similarities of the votes", above=0, below=float("inf"))
    search: Literal["tiles", "faiss"] = setting("tiles", "how neighbors are found; both are exact")


def knn(task: Task, settings: KnnSettings, seed: int) -> Outcome:
    """All metrics for the first k, the accuracy for the others."""
    most = min(max(settings.k), len(task.train))
    query, keys = task.test_features, task.train_features
    if query.is_sparse:  # rows have length one already
        similarity, index = sparse_nearest(query, keys, k=most)  # (N, most)
    else:
        similarity, index = nearest(l2_normalize(query), l2_normalize(keys), k=most, search=settings.search)
    labels = task.train.labels[index]
    outcome: Outcome | None = None
    for k in dict.fromkeys(min(k, most) for k in settings.k):
        scores = knn_votes(
            similarity[:, :k], labels[:, :k], temperature=settings.temperature, classes=task.classes
        )  # (N, C)
        if outcome is None:
            outcome = classified(task, scores, seed)
        else:
            outcome.metrics[f"accuracy, k = {k}"] = accuracy(scores, task.test.labels)
    assert outcome is not None
    return outcome


PROTOCOL = Protocol("knn", knn, "weighted k-nearest neighbors", "accuracy", KnnSettings, title="k-NN")
