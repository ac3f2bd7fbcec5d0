"""Retrieval: each test sample ranks the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.devices import in_float64
from nearfar.evaluation.metrics import mean_estimate, proportion
from nearfar.evaluation.paired import SampleValues
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Task, arrays
from nearfar.losses.arguments import check_ids, check_rows, l2_normalize
from nearfar.settings import setting

_ENTRIES = 1 << 22  # similarities held at once


@dataclass(frozen=True)
class RetrievalSettings:
    """Protocol retrieval: each test sample ranks the others."""

    cutoffs: list[int] = setting([1, 5, 10], "the k of recall@k and precision@k", least=1)
    max_queries: int = setting(10_000, "test samples that are queries, evenly spaced", least=1)


def retrieve(task: Task, settings: RetrievalSettings, seed: int) -> Outcome:
    """Each test sample retrieves those of its class among the other test samples."""
    labels = task.test.labels
    found = retrieval(task.test_features, labels, cutoffs=settings.cutoffs, queries=settings.max_queries)
    metrics = {"mAP": mean_estimate(found.average_precision, count=task.bootstrap, seed=seed)}
    for k, hits in found.recall.items():
        metrics[f"recall@{k}"] = proportion(hits)
    for k, shares in found.precision.items():
        metrics[f"precision@{k}"] = mean_estimate(shares, count=task.bootstrap, seed=seed)
    alone = int((labels.bincount()[labels] < 2).sum())
    notes = [f"{alone} test samples are alone in their class and were not queries"] if alone else []
    samples = {"mAP": SampleValues(found.average_precision)}
    samples |= {f"recall@{k}": SampleValues(hits) for k, hits in found.recall.items()}
    return Outcome(metrics, arrays(average_precision=found.average_precision, queries=found.queries), notes, samples)


class Retrieved(NamedTuple):
    """Results of Q queries; samples that are alone in their class are not queries."""

    queries: Tensor  # (Q,) row numbers
    average_precision: Tensor  # (Q,)
    recall: dict[int, Tensor]  # by k, (Q,) booleans: is there one of its class among the k nearest?
    precision: dict[int, Tensor]  # by k, (Q,) shares of its class among the k nearest


@torch.no_grad()
def retrieval(
    z: Tensor, labels: Tensor, *, cutoffs: Sequence[int] = (1, 5, 10), queries: int | None = None
) -> Retrieved:
    """Rank all other rows by cosine for each query: the query itself is never in its own gallery.

    A few queries at a time, so memory is linear in the number of rows; time is that of sorting a row for each query.

    Args:
        z: (N, D) embeddings; normalised here.
        labels: (N,) integers.
        cutoffs: the k of recall@k and precision@k; those of N or more are left out.
        queries: at most as many, evenly spaced; all N where None.

    Reference: recall@k is Song et al. 2016's, section 5, https://arxiv.org/abs/1511.06452; the average precision is
        over the whole ranking.

    >>> found = retrieval(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]), torch.tensor([0, 0, 1, 1]))
    >>> found.average_precision.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    check_rows("z", z)
    check_ids("labels", labels, len(z), z)
    u = l2_normalize(z)
    same = labels.unique(return_inverse=True, return_counts=True)
    relevant = same[2][same[1]] - 1  # (N,)
    asking = (relevant > 0).nonzero()[:, 0]
    if len(asking) == 0:
        raise ValueError(f"no two of {len(z)} rows have the same label, expected at least one pair to retrieve")
    if queries is not None and len(asking) > queries:
        asking = asking[torch.linspace(0, len(asking) - 1, queries).long()]
    cutoffs = [k for k in cutoffs if k < len(z)]
    places = in_float64(torch.arange(1, len(z) + 1, device=z.device))
    precisions: list[Tensor] = []
    hits: dict[int, list[Tensor]] = {k: [] for k in cutoffs}
    for part in asking.split(max(1, _ENTRIES // len(z))):
        s = u[part] @ u.T  # (part, N)
        s[torch.arange(len(part)), part] = -torch.inf  # itself comes last, and is cut off
        order = s.argsort(dim=1, descending=True)[:, :-1]
        right = labels[order] == labels[part, None]  # (part, N - 1)
        found = right.cumsum(1)  # (part, N - 1)
        precisions.append((in_float64(right * found) / places[:-1]).sum(1) / found[:, -1].to(places))
        for k in cutoffs:
            hits[k].append(found[:, k - 1])
    counts = {k: torch.cat(h) for k, h in hits.items()}
    return Retrieved(
        asking, torch.cat(precisions), {k: h > 0 for k, h in counts.items()}, {k: h / k for k, h in counts.items()}
    )


PROTOCOL = Protocol(
    "retrieval",
    retrieve,
    "find the same class: mAP, recall@k, precision@k",
    "mAP",
    RetrievalSettings,
    title="Retrieval",
)
