"""The nearest neighbours of a few images, as pictures: what an encoder holds to be alike."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nearfar.evaluation.results import write_atomically
from nearfar.evaluation.task import LabelledImages
from nearfar.losses.arguments import check_rows, unit
from nearfar.losses.engine.top_k import top_k_similarity

_LARGEST = 64  # side of a thumbnail


@dataclass(frozen=True)
class Neighbours:
    """Q query images, each with its K nearest others in falling order of similarity."""

    queries: NDArray[np.uint8]  # (Q, S, S, 3)
    images: NDArray[np.uint8]  # (Q, K, S, S, 3)
    similarities: NDArray[np.float32]  # (Q, K) cosines
    query_labels: NDArray[np.str_]  # (Q,) class names, empty where there are none
    labels: NDArray[np.str_]  # (Q, K)

    def save(self, path: Path | str) -> Path:
        """Write a compressed .npz file."""
        content = io.BytesIO()
        np.savez_compressed(content, **vars(self))
        return write_atomically(path, content.getvalue())

    @classmethod
    def load(cls, path: Path | str) -> "Neighbours":
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as content:
            return cls(**{name: content[name] for name in cls.__dataclass_fields__})


@torch.no_grad()
def find_neighbours(
    embeddings: Tensor, dataset: LabelledImages, *, queries: int = 8, k: int = 8, seed: int = 0
) -> Neighbours:
    """Draw a few images, of as many classes as there are, and find the most similar others by cosine.

    Args:
        embeddings: (N, F), one for each image of the data set, in its order.
        dataset: N images.
        queries, k: how many images, and neighbours of each; fewer where the data set is small.
        seed: of the draw.
    """
    check_rows("embeddings", embeddings)
    if len(embeddings) != len(dataset) or len(dataset) < 2:
        raise ValueError(
            f"{len(embeddings)} embeddings for {len(dataset)} images, expected one for each, and at least two"
        )
    z = unit(embeddings.cpu())
    chosen = _draw(dataset, min(queries, len(dataset)), seed)  # (Q,)
    similarities, index = top_k_similarity(
        z[chosen], z, k=min(k, len(z) - 1), query_ids=chosen, key_ids=torch.arange(len(z))
    )  # (Q, K)
    pictures = _thumbnails(dataset, chosen)  # (Q, S, S, 3)
    return Neighbours(
        queries=pictures,
        images=_thumbnails(dataset, index.flatten()).reshape(*index.shape, *pictures.shape[1:]),
        similarities=similarities.numpy().astype(np.float32),
        query_labels=_names(dataset, chosen),
        labels=_names(dataset, index.flatten()).reshape(index.shape),
    )


def _draw(dataset: LabelledImages, queries: int, seed: int) -> Tensor:
    """(Q,) image numbers: one of each class before a second of any."""
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))
    if dataset.labels is None:
        return order[:queries]
    seen: dict[int, int] = {}
    turn = []
    for label in dataset.labels.cpu()[order].tolist():
        turn.append(seen.get(label, 0))
        seen[label] = turn[-1] + 1
    return order[torch.tensor(turn).argsort(stable=True)[:queries]]


def _thumbnails(dataset: LabelledImages, rows: Tensor) -> NDArray[np.uint8]:
    """(K,) image numbers to (K, S, S, 3) uint8, S at most 64."""
    x = dataset.fetch(rows)  # (K, 3, S, S)
    if x.shape[-1] > _LARGEST:
        x = F.interpolate(x.float(), size=(_LARGEST, _LARGEST), mode="area").round().to(torch.uint8)
    return x.permute(0, 2, 3, 1).contiguous().numpy()


def _names(dataset: LabelledImages, rows: Tensor) -> NDArray[np.str_]:
    if dataset.labels is None:
        return np.full(len(rows), "", dtype=np.str_)
    classes, labels = dataset.classes, dataset.labels.cpu()[rows].tolist()
    return np.array(["" if n < 0 else str(n) if classes is None else classes[n] for n in labels], dtype=np.str_)
