"""What a run sees of its data: samples by number, wherever they came from."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.row_sums import RowSums

Captions = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Skipped:
    """A sample that could not be read, and why, in a line; or a shard or folder, with all that was in it."""

    path: str
    reason: str
    samples: int | None = 1  # that are gone with it; None: some, and nobody knows how many


def counted(count: int, what: str) -> str:
    """A number and its noun.

    >>> counted(1, "step"), counted(2000, "test sample")
    ('1 step', '2,000 test samples')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def how_many(skipped: Sequence[Skipped], what: str | None = None) -> str:
    """The samples that are gone, as a number in words; with `what` they are.

    >>> how_many([Skipped("a.tar", "cut short", 10), Skipped("b.png", "not an image")])
    '11'
    >>> how_many([Skipped("b.png", "not an image")], "file")
    '1 file'
    >>> how_many([Skipped("a.tar", "cut short", None), Skipped("b.png", "not an image")])
    'at least 2'
    """
    total = sum(1 if s.samples is None else s.samples for s in skipped)
    number = f"at least {total:,}" if any(s.samples is None for s in skipped) else f"{total:,}"
    return number if what is None else f"{number} {what}{'' if number == '1' else 's'}"


def label_names(labels: Tensor | None, classes: Sequence[str] | None, rows: Sequence[int]) -> list[str | None]:
    """The class name of each row; None where it has no label.

    >>> label_names(torch.tensor([1, -1, 0]), ["cat", "dog"], [0, 1])
    ['dog', None]
    """
    if labels is None:
        return [None] * len(rows)
    numbers = labels[list(rows)].tolist()
    return [None if n < 0 else str(n) if classes is None else classes[n] for n in numbers]


class Facts(TypedDict, total=False):
    """What may be known of the N samples of a data set; see `Dataset`. Names are the numbers where there are none."""

    labels: Tensor | Sequence[int] | None
    classes: Sequence[str] | None
    groups: Tensor | Sequence[int] | None
    captions: Captions | None
    names: Sequence[str] | None
    skipped: Sequence[Skipped]


class Dataset(ABC):
    """Samples by number. Packed and streamed data look the same.

    Attributes:
        labels: (N,) int64 with -1 where a sample has none, or None.
        classes: names of the labels, or None.
        groups: (N,) int64 or None; samples of one group are never negatives of each other.
        captions: N tuples of one or more texts, each of which says what the sample shows, or None.
        tower_features: (N, F) what a locked tower makes of the samples, in place of their views; None: not known.
        texts: N sentences, if the samples are sentences.
        partners: N texts that go with them, if they are pairs.
        negatives: N tuples of one or more texts, equally many, that do not go with them, if there are some.
        scores: (N,) how similar the two sentences of a pair are, or None.
        shards: (N,) the number of the shard that each sample is in, or None.
        token_counts: (N,) tokens of each text; a batch is as long as its longest text. None without texts.
        sample_rate: values a second, if the samples are sounds.
        boxed: whether the samples have boxes.
        names: N texts that say where each sample came from: a relative path, or an index.
        size: side of the stored square image, or what else all samples have one of.
        skipped: samples that could not be read and are not among the N.
        columns: attributes with one entry for each sample, those of a class of data and `COLUMNS`.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    labels: Tensor | None = None
    classes: list[str] | None = None
    groups: Tensor | None = None
    captions: Captions | None = None
    tower_features: Tensor | None = None
    texts: Sequence[str] | None = None
    partners: Sequence[str] | None = None
    negatives: Sequence[tuple[str, ...]] | None = None
    scores: Tensor | None = None
    shards: Tensor | None = None
    token_counts: Tensor | None = None
    sample_rate: int | None = None
    boxed: bool = False
    names: Sequence[str]
    size: int
    skipped: Sequence[Skipped] = ()

    def longest_text(self, indices: Tensor) -> int | None:
        """Tokens of the longest text of samples (B,), padding not counted; None: nothing to cut."""
        return None

    def describe(self, **facts: Unpack[Facts]) -> None:
        """Set what is known of the samples, checked: one entry for each."""
        n = len(self)
        self.labels = _integers("labels", facts.get("labels"), n)
        self.groups = _integers("groups", facts.get("groups"), n)
        classes, names, self.captions = facts.get("classes"), facts.get("names"), facts.get("captions")
        self.classes = None if classes is None else list(classes)
        self.names = list(map(str, range(n))) if names is None else names
        self.skipped = list(facts.get("skipped", ()))
        for what, texts in (("captions", self.captions), ("names", self.names)):
            if texts is not None and len(texts) != n:
                raise ValueError(f"{len(texts)} {what} for {n} samples, expected one for each")
        wrong = next((c for c in self.captions or () if not isinstance(c, tuple) or not c), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is among the captions, expected a tuple of one or more texts for each sample")

    @abstractmethod
    def __len__(self) -> int: ...

    def __repr__(self) -> str:
        labels = "no labels" if self.classes is None else f"{len(self.classes)} classes"
        return f"{type(self).__name__}({counted(len(self), 'sample')} of size {self.size}, {labels})"

    @property
    def text_columns(self) -> list[Sequence[str]]:
        """N texts each: the texts themselves, their partners and each of their negatives, as far as there are some."""
        columns = [column for column in (self.texts, self.partners) if column is not None]
        return [*columns, *map(list, zip(*self.negatives or (), strict=True))]

    @abstractmethod
    def fetch(self, indices: Tensor) -> Tensor:
        """(B,) int64 to the raw samples (B, ...), as `Modality.prepare` takes them."""

    def subset(self, indices: Tensor) -> Self:
        """The samples (K,) `indices` as a data set of their own, on the same stored values."""
        part = copy.copy(self)
        for name in (*COLUMNS, *self.columns):
            setattr(part, name, picked(getattr(self, name), indices.cpu()))
        return part

    def failed(self, indices: Tensor) -> dict[int, Skipped]:
        """Which of the samples (B,) were found unreadable when they were fetched: place in `indices`, and why."""
        return {}


COLUMNS = ("labels", "groups", "captions", "texts", "partners", "negatives", "scores", "shards", "names")


def picked(column: Any, indices: Tensor) -> Any:
    """The entries (K,) `indices` of a column: a tensor, an array, a list or None.

    >>> picked(["a", "b", "c"], torch.tensor([2, 0]))
    ['c', 'a']
    """
    if column is None or isinstance(column, Tensor):
        return column if column is None else column[indices]
    return column[indices.numpy()] if isinstance(column, np.ndarray) else [column[i] for i in indices.tolist()]


class ArrayDataset(Dataset):
    """Images in one array, in memory or mapped from a file.

    Args:
        images: (R, S, S, 3) uint8.
        rows: (N,) which of the R images are the samples, in order; all of them where None.
        sums: what the images are compared with when they are read, of a pack.
        facts: labels, classes, groups, captions, names, skipped.

    >>> data = ArrayDataset(np.zeros((5, 8, 8, 3), np.uint8), labels=[0, 1, 0, 1, 0], classes=["cat", "dog"])
    >>> data.fetch(torch.tensor([4, 0])).shape, data.subset(torch.tensor([1, 3])).labels.tolist()
    (torch.Size([2, 3, 8, 8]), [1, 1])
    """

    columns = ("rows",)

    def __init__(
        self,
        images: NDArray[np.uint8],
        *,
        rows: NDArray[np.int64] | None = None,
        sums: RowSums | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        if images.ndim != 4 or images.shape[1] != images.shape[2] or images.shape[3] != 3 or images.dtype != np.uint8:
            raise ValueError(f"images are {images.dtype} of shape {images.shape}, expected uint8 of shape (N, S, S, 3)")
        self.images, self.size = images, int(images.shape[1])
        self.rows, self.sums = np.arange(len(images)) if rows is None else rows, sums
        self.describe(**facts)

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, indices: Tensor) -> Tensor:
        """(B,) int64 to (B, 3, S, S) uint8."""
        rows = self.rows[indices.cpu().numpy()]
        images = np.asarray(self.images[rows])  # (B, S, S, 3), a copy
        if self.sums is not None:
            self.sums.check(rows, images)
        return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def _integers(name: str, values: Tensor | Sequence[int] | None, length: int) -> Tensor | None:
    if values is None:
        return None
    column = torch.as_tensor(values)
    if column.shape != (length,) or column.is_floating_point():
        raise ValueError(
            f"{name} are {column.dtype} of shape {tuple(column.shape)}, expected ({length},) integers: one per sample"
        )
    return column.to(torch.int64)
