"""What a protocol is given and what it gives back: one contract for all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.config import ProtocolConfig
from nearfar.evaluation.embedding import Encoder, Images, Prepare, embed
from nearfar.evaluation.metrics import Estimate
from nearfar.modalities.image.data.boxes import BoxedImages

Augment = Callable[[Tensor, torch.Generator], Tensor]  # samples as they are fetched to others like them


class LabelledImages(Images, Protocol):
    """Images of which some or all may have a label."""

    @property
    def labels(self) -> Tensor | None:
        """(N,) int64 with -1 where an image has none, or None."""
        ...

    @property
    def classes(self) -> Sequence[str] | None:
        """Names of the labels, or None."""
        ...


@dataclass(frozen=True)
class Part:
    """The images of a split that count."""

    images: LabelledImages
    rows: Tensor  # (N,) their numbers
    labels: Tensor  # (N,) from 0 to classes - 1; all 0 where there are no labels
    name: str  # "training", "test", "validation", ...

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, places: Tensor) -> Tensor:
        """(B,) places among the N to (B, 3, S, S) uint8."""
        return self.images.fetch(self.rows[places])

    @property
    def boxed(self) -> BoxedImages:
        """The images with their boxes, which take part whole."""
        if not isinstance(self.images, BoxedImages):
            raise ValueError(f"the {self.name} part has no boxes")
        return self.images


@dataclass(frozen=True)
class Task:
    """One encoder on one data set: all that a protocol may look at. Nothing is fitted or chosen on `test`."""

    name: str
    encoder: Encoder
    prepare: Prepare
    train: Part
    test: Part
    classes: int
    labelled: bool = True
    settings: ProtocolConfig = field(default_factory=ProtocolConfig)
    batch_size: int = 256
    device: torch.device | str | None = None
    progress: bool = False
    augment: Augment | None = None  # how samples are varied that are no images

    @property
    def names(self) -> list[str]:
        """Of the classes, or their numbers."""
        known = list(self.train.images.classes or ())[: self.classes]
        return known + [str(number) for number in range(len(known), self.classes)]

    @cached_property
    def train_features(self) -> Tensor:
        """(M, F), computed at the first look; sparse where the encoder has `sparse_rows`, as tf-idf does."""
        return self._embed(self.train)

    @cached_property
    def test_features(self) -> Tensor:
        """(N, F)."""
        return self._embed(self.test)

    def _embed(self, part: Part) -> Tensor:
        sparse: Callable[[object, Tensor], Tensor] | None = getattr(self.encoder, "sparse_rows", None)
        if sparse is not None:
            return sparse(part.images, part.rows)
        return embed(
            self.encoder,
            part.images,
            prepare=self.prepare,
            batch_size=self.batch_size,
            device=self.device,
            rows=part.rows,
            progress=self.progress and f"{self.name}: {part.name} part",
        )


Curves = dict[str, NDArray[Any]]  # arrays by name: curves, spectra, a confusion matrix


@dataclass(frozen=True)
class Outcome:
    """What a protocol found: numbers by metric, and the data behind its figures."""

    metrics: dict[str, Estimate]
    curves: Curves = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Measure:
    """An entry of `PROTOCOLS`."""

    run: Callable[[Task, int], Outcome]  # the int is a seed
    what: str  # in a line, for help
    headline: str  # pattern of the metrics to read first
    settings: tuple[str, ...] = ()  # of `ProtocolConfig`, that the result depends on
    seeded: bool = False  # the result depends on the seed, so that several are worth their time
    needs: Literal["labels", "boxes", "images", "words"] = "labels"  # of the data; words are labelled sounds
    reads: bool = False  # for encoders of images and texts alone
    examples: bool = False  # or else by the training images that have a text
    frames: bool = False  # for encoders that give frames in time alone
    raw: bool = False  # looks at the prepared samples alone, so that it is measured of "raw" alone

    @property
    def labelled(self) -> bool:
        """Whether labels are needed."""
        return self.needs in ("labels", "words")


def arrays(**tensors: Tensor) -> Curves:
    """Tensors as arrays, for `Outcome.curves`."""
    return {name: np.asarray(x.detach().cpu()) for name, x in tensors.items()}
