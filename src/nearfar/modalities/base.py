"""What a run must know of a kind of data: how its samples are opened, viewed, prepared, encoded and shown."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.data.dataset import Dataset
from nearfar.nn.part import Part


class Modality(Protocol):
    """Made from a configuration; all that differs between images, sentences and sounds in a run is in here."""

    @property
    def preparation(self) -> Callable[[Tensor], Tensor]:
        """What fetched samples go through outside of training, where nothing is left to chance."""
        ...

    def open(self, spec: str, *, split: str | None = None, groups: str | None = None) -> Dataset:
        """The samples that a name or path stands for."""
        ...

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        """A fresh encoder, its F in `num_features`.

        Args:
            untrained: draw the weights also where the run begins with given ones.
        """
        ...

    def options(self) -> dict[str, Any]:
        """Options of methods that the data know better than the defaults; a method takes those that it has."""
        ...

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, part: Part | None = None
    ) -> list[Tensor]:
        """What the method sees of a batch in training: the same seed and step always give the same.

        Args:
            samples: what `source.fetch(index)` gave, on the device.
            source: where they are from.
            index: (B,) their numbers there.
            part: which rows of the batch these are, where several processes share it.
        """
        ...

    def two_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        """Two views as in training, also where the method needs but one: what should be alike in validation."""
        ...

    @property
    def raw(self) -> Callable[[Tensor], Tensor] | None:
        """Fetched samples to the baseline "raw", where the preparation does more than bring them into form."""
        ...

    def ids(self, source: Dataset) -> Tensor:
        """(N,): samples with equal ids are never negatives of each other."""
        ...

    def baseline(self, train: Dataset, test: Dataset) -> Callable[[Tensor], Tensor] | None:
        """What prepared samples are worth before anything is learned, as an encoder; None: their values.

        No label of theirs may be used.
        """
        ...

    @property
    def protocols(self) -> Sequence[str]:
        """What is measured at the end of a run."""
        ...

    def card(self) -> dict[str, Any]:
        """How to feed the encoder, for the card beside its weights."""
        ...

    def pictures(self, samples: Tensor, side: int) -> NDArray[np.uint8] | None:
        """(B, ...) fetched samples to thumbnails (B, s, s, 3), s at most `side`; None where they have no picture."""
        ...

    def show(self, source: Dataset, folder: Path) -> str:
        """Let the user see what the method sees, in the run folder; a line that says where."""
        ...
