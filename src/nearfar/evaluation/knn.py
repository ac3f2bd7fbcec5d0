"""k-nearest-neighbour classification on frozen embeddings: nothing is trained, so nothing can be tuned to please."""

from typing import Literal

import torch
from torch import Tensor

from nearfar.evaluation.metrics import Estimate, accuracy
from nearfar.losses.arguments import check_compatible, check_ids, check_positive, check_rows, l2_normalize
from nearfar.losses.engine.top_k import top_k_similarity

Search = Literal["tiles", "faiss"]


@torch.no_grad()
def knn_predict(
    train: Tensor,
    labels: Tensor,
    test: Tensor,
    *,
    k: int = 20,
    temperature: float | None = 0.07,
    classes: int,
    search: Search = "tiles",
) -> Tensor:
    """Scores of each class: the votes of the k most similar training rows, each with weight exp(cosine / temperature).

    Exact, and in memory linear in the number of rows: the similarity matrix is never held.

    Args:
        train: (M, D) embeddings; normalised here.
        labels: (M,) integers from 0 to classes - 1.
        test: (N, D).
        k: how many neighbours vote, at most M.
        temperature: divides the cosine similarities; None gives each neighbour the same vote.
        classes: C.
        search: "tiles" or, where it is installed, "faiss"; see `nearest`.

    Returns:
        (N, C), each row sums to one. The paper's weights are these times a constant of the row.

    Reference: Wu et al. 2018 (InstDisc), section 3.4, https://arxiv.org/abs/1805.01978

    >>> train, labels = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> knn_predict(train, labels, torch.tensor([[0.1, 1.0]]), k=2, classes=2).argmax(1).tolist()
    [1]
    """
    check_rows("train", train)
    check_rows("test", test)
    check_compatible("test", test, "train", train, features_only=True)
    check_classes(labels, train, classes)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= len(train):
        raise ValueError(f"k is {k!r}, expected a whole number from 1 to {len(train)}, the training rows")
    similarity, index = nearest(l2_normalize(test), l2_normalize(train), k=k, search=search)  # (N, k)
    return knn_votes(similarity, labels.long()[index], temperature=temperature, classes=classes)


def knn_votes(similarity: Tensor, labels: Tensor, *, temperature: float | None, classes: int) -> Tensor:
    """(N, C) scores from the (N, k) cosines and labels of each row's neighbours."""
    if temperature is None:
        votes = torch.full_like(similarity, 1 / similarity.shape[1])
    else:
        check_positive("temperature", temperature)
        votes = (similarity / temperature).softmax(1)  # relative to the row's largest: no exp overflows
    return votes.new_zeros(len(similarity), classes).scatter_add_(1, labels, votes)  # (N, C)


def nearest(query: Tensor, keys: Tensor, *, k: int, search: Search = "tiles") -> tuple[Tensor, Tensor]:
    """(N, k) inner products of each query with its k nearest keys, falling, and their row numbers; exact.

    Args:
        query, keys: (N, D), (M, D) unit rows.
        k: at most M.
        search: "tiles" is ours. "faiss" is an IndexFlatIP: exact too, in float32, on the CPU. At 2,000 × 20,000 rows,
            D = 512, one thread, it was the slower one; no other size was measured.
    """
    if search == "tiles":
        return top_k_similarity(query, keys, k=k)
    try:
        import faiss
    except ImportError:
        raise ImportError("search is 'faiss', which is not installed: pip install 'nearfar[search]'") from None
    index = faiss.IndexFlatIP(keys.shape[1])
    index.add(keys.cpu().float().contiguous().numpy())
    values, rows = index.search(query.cpu().float().contiguous().numpy(), k)
    return torch.from_numpy(values).to(query), torch.from_numpy(rows).to(query.device)


def knn_accuracy(
    train: Tensor,
    labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    *,
    k: int = 20,
    temperature: float | None = 0.07,
    classes: int | None = None,
) -> Estimate:
    """The share of test rows whose class `knn_predict` finds.

    Args:
        train, test: (M, D), (N, D) embeddings.
        labels, test_labels: (M,), (N,) integers.
        k: neighbours; all training rows where there are fewer.
        temperature: see `knn_predict`.
        classes: C; the largest training label plus one where None.
    """
    classes = int(labels.max()) + 1 if classes is None else classes
    scores = knn_predict(train, labels, test, k=min(k, len(train)), temperature=temperature, classes=classes)
    return accuracy(scores, test_labels)


def check_classes(labels: Tensor, rows: Tensor, classes: int) -> None:
    """(M,) integers from 0 to classes - 1, one for each row."""
    check_ids("labels", labels, len(rows), rows)
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= classes:
        raise ValueError(f"labels go from {least} to {most}, expected from 0 to {classes - 1}, classes - 1")
