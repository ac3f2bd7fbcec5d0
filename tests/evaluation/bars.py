"""Small labelled images made by code, and plain functions measured on data without a run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.evaluation.baselines import RawValues
from nearfar.evaluation.evaluate_run import baseline_embedder
from nearfar.evaluation.measure import TestData, measure
from nearfar.evaluation.results import Results
from nearfar.evaluation.task import Embedder
from nearfar.modalities import make_modality
from nearfar.modalities.baseline import Baseline


class Bars(Dataset):
    """Images with a bright row at the height their label says, under noise."""

    size = 8

    def __init__(
        self, n: int, seed: int, labels: Tensor | None = None, classes: Sequence[str] | None = ("a", "b", "c", "d")
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        truth = torch.arange(n) % 4
        self.images = torch.randint(0, 120, (n, 3, 8, 8), generator=generator, dtype=torch.uint8)
        self.images[torch.arange(n), :, 2 * truth] += 60
        self.labels = truth if labels is None else labels
        self.classes = None if classes is None else list(classes)
        self.names = [str(i) for i in range(n)]

    def __len__(self) -> int:
        return len(self.images)

    def fetch(self, indices: Tensor) -> Tensor:
        return self.images[indices]

    def subset(self, indices: Tensor) -> "Bars":
        raise NotImplementedError


def prepare(x: Tensor) -> Tensor:
    return x.float() / 255


def embedder(name: str, encoder: Any, prepare: Callable[[Tensor], Tensor]) -> Embedder:
    """A module, a baseline or any function as protocols see it."""
    if isinstance(encoder, Baseline):
        return baseline_embedder(name, encoder, prepare)
    frames = encoder.frames if isinstance(encoder, nn.Module) and hasattr(encoder, "frames") else None
    return Embedder(name, encoder, prepare, frames=frames)


def evaluate(
    encoders: Mapping[str, Any],
    train: Dataset,
    test: Dataset,
    *,
    prepare: Callable[[Tensor], Tensor] = prepare,
    protocols: Sequence[str] = ("knn", "linear"),
    seeds: Sequence[int] = (0,),
    settings: Any = None,
) -> Results:
    """Encoders that are no run's, and the raw values beside them."""
    everyone = [embedder(name, encoder, prepare) for name, encoder in encoders.items()]
    if "raw" not in encoders and not train.boxed:
        everyone.append(embedder("raw", RawValues(), prepare))
    vary = make_modality(TrainConfig(backbone="micro", modality="image")).vary
    return measure(everyone, TestData(train, test, vary=vary), protocols, settings, seeds=seeds)
