"""What a protocol is given and what it gives back: one contract for all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import Encoder, Prepare, device_of, embed, evaluation_mode
from nearfar.evaluation.metrics import Estimate
from nearfar.evaluation.paired import SampleValues
from nearfar.modalities.image.data.boxes import BoxedImages

NO_TEXTS = "it reads no texts; expected an encoder of images and texts, such as one that CLIP trained"
LOGIT_SCALE = 100.0  # of an encoder that states none; calibration depends on it, accuracy does not
Vary = Callable[..., Tensor]  # raw samples and a generator, and `strong`, to raw samples varied at random
EmbedTexts = Callable[[list[str]], Tensor]  # B texts to (B, F)
Role = Literal["encoder", "start", "baseline"]


@dataclass(frozen=True)
class Embedder:
    """A frozen encoder, or a baseline, as protocols see it. What it cannot do is None.

    Attributes:
        name: in the result rows: "trained", "untrained", "raw", ...
        encoder: (B, ...) prepared input to (B, F); a module or any function.
        prepare: raw samples, as `fetch` gives them, to the encoder's input.
        origin: where it comes from, for the record.
        transform: (N, F) features on the CPU to embeddings (N, F); None: they are the same.
        embed_texts: texts to (B, F), in the space of the samples.
        frames: prepared input to (B, L, D) frames in time, and (B, L), False behind the end.
        logit_scale: multiplies the cosines of samples and texts.
        sparse_rows: a data set and (K,) row numbers to (K, F) sparse features, in place of `encoder`.
        cosines: texts and as many others to (P,), in place of the cosines of `embed_texts`.
        protocols: those worth measuring it by; None: all.
        role: an encoder in question, the start of its training, or a baseline that has learned nothing.
        from_scratch: whether its weights are as they were drawn: training them further is training from scratch.
    """

    name: str
    encoder: Encoder
    prepare: Prepare
    origin: str = ""
    transform: Callable[[Tensor], Tensor] | None = None
    embed_texts: EmbedTexts | None = None
    frames: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
    logit_scale: float = LOGIT_SCALE
    sparse_rows: Callable[[Any, Tensor], Tensor] | None = None
    cosines: Callable[[Sequence[str], Sequence[str]], Tensor] | None = None
    protocols: Sequence[str] | None = None
    role: Role = "encoder"
    from_scratch: bool = False


@dataclass(frozen=True)
class Part:
    """The samples of a split that count."""

    data: Dataset
    rows: Tensor  # (N,) their numbers
    labels: Tensor  # (N,) from 0 to classes - 1; all 0 if there are no labels
    name: str  # "training", "test", "validation", ...

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, places: Tensor) -> Tensor:
        """(B,) places among the N to raw samples (B, ...)."""
        return self.data.fetch(self.rows[places])

    @property
    def captions(self) -> list[tuple[str, ...]] | None:
        """Of each sample."""
        captions = self.data.captions
        return None if captions is None else [captions[row] for row in self.rows.tolist()]

    @property
    def boxed(self) -> BoxedImages:
        """The images with their boxes, of which all count."""
        if not self.data.boxed:
            raise ValueError(f"the {self.name} part has no boxes")
        return self.data  # type: ignore[return-value]


@dataclass(frozen=True)
class Compute:
    """How the work is done; numbers depend on it by rounding at most."""

    batch_size: int = 256  # samples embedded at a time
    device: torch.device | str | None = None  # None: where the encoder is
    progress: bool = False  # show progress bars

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}, expected at least 1")


@dataclass(frozen=True)
class Task:
    """One encoder on one data set: all that a protocol may use. Nothing is fitted or chosen on `test`."""

    embedder: Embedder
    train: Part
    test: Part
    classes: int
    labelled: bool = True
    validation_fraction: float = 0.1
    bootstrap: int = 200
    compute: Compute = field(default_factory=Compute)
    vary: Vary | None = None  # for protocols that augment

    @property
    def name(self) -> str:
        """Of the encoder, in the result rows."""
        return self.embedder.name

    @property
    def encoder(self) -> Encoder:
        """(B, ...) prepared input to (B, F)."""
        return self.embedder.encoder

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, or their numbers."""
        known = list(self.train.data.classes or ())[: self.classes]
        return known + [str(number) for number in range(len(known), self.classes)]

    @cached_property
    def train_features(self) -> Tensor:
        """(M, F) embeddings, computed when first used; sparse if the encoder gives sparse rows."""
        return self._transformed(self.raw_train_features)

    @cached_property
    def test_features(self) -> Tensor:
        """(N, F)."""
        return self._transformed(self.raw_test_features)

    @cached_property
    def raw_train_features(self) -> Tensor:
        """(M, F) before the embedder's transform: for protocols that train on them."""
        return self._embed(self.train)

    @cached_property
    def raw_test_features(self) -> Tensor:
        """(N, F)."""
        return self._embed(self.test)

    @torch.no_grad()
    def _transformed(self, h: Tensor) -> Tensor:
        return h if self.embedder.transform is None else self.embedder.transform(h)

    def _embed(self, part: Part) -> Tensor:
        if self.embedder.sparse_rows is not None:
            return self.embedder.sparse_rows(part.data, part.rows)
        return embed(
            self.encoder,
            part.data,
            prepare=self.embedder.prepare,
            batch_size=self.compute.batch_size,
            device=self.compute.device,
            rows=part.rows,
            progress=self.progress(f"{part.name} part"),
        )

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(M, F) of M texts, on the CPU."""
        if self.embedder.embed_texts is None:
            raise ValueError(NO_TEXTS)
        step = self.compute.batch_size
        batches = [list(texts[start : start + step]) for start in range(0, len(texts), step)]
        return torch.cat([self.embedder.embed_texts(batch).cpu() for batch in batches])

    @torch.no_grad()
    def frames(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Raw samples to (B, L, D) frames in time and (B, L), False behind the end, in evaluation mode."""
        if self.embedder.frames is None:
            raise ValueError("it gives no frames in time; expected an encoder such as audio-tiny or cpc-16k")
        with evaluation_mode(self.encoder):
            return self.embedder.frames(self.embedder.prepare(samples.to(self.device)))

    def varied(self, samples: Tensor, generator: torch.Generator, *, strong: bool = False) -> Tensor:
        """Raw samples, each varied at random."""
        if self.vary is None:
            raise ValueError("these samples have no augmentation, which it needs")
        return self.vary(samples, generator, strong=strong)

    @property
    def device(self) -> torch.device:
        """Where to compute."""
        return device_of(self.encoder) if self.compute.device is None else torch.device(self.compute.device)

    def progress(self, what: str) -> str | bool:
        """The words of a progress bar; False if none is shown."""
        return self.compute.progress and f"{self.name}: {what}"


Curves = dict[str, NDArray[Any]]  # arrays by name: curves, spectra, a confusion matrix


@dataclass(frozen=True)
class Outcome:
    """What a protocol found: numbers by metric, and the data behind its figures.

    Attributes:
        samples: by metric, what each test sample adds to it: encoders are compared on the same samples by these.
    """

    metrics: dict[str, Estimate]
    curves: Curves = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, SampleValues] = field(default_factory=dict)


def arrays(**tensors: Tensor) -> Curves:
    """Tensors as arrays, for `Outcome.curves`."""
    return {name: np.asarray(x.detach().cpu()) for name, x in tensors.items()}
