"""What the system must know of a kind of data. All that is particular to it lives in its own folder."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.data.dataset import Dataset
from nearfar.messages import nearest
from nearfar.methods import Batch, known_method
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.baseline import Baseline
from nearfar.modalities.data_splits import Splits as Splits
from nearfar.modalities.named_samples import NamedSamples, SamplesByRow
from nearfar.nn.shard import Shard

Prepare = Callable[[Tensor], Tensor]  # raw samples, as `fetch` gives them, to the encoder's input


class Modality(ABC):
    """One kind of data, as a run's configuration describes it. `open` changes nothing; `fit` learns what it must.

    Attributes:
        name: as `--modality` has it.
        noun: the samples in messages, in the plural.
        queries: the kinds of items that `read` takes, the first where nothing is said.
        protocols: what is measured at the end of a run.
        baseline_name: what the baseline "raw" is, for the record.
        has_pictures: whether `thumbnails` draws the samples.
        view_factors: which settings of views beside their preset and number mean something, such as "color".
        walks_folders: samples may be files below a folder, where a run folder must not lie.
        suffixes: of such files.
        takes_objects: which of "encoder" and "views" may be a network and a callable of the user's own.
    """

    name: ClassVar[str]
    noun: ClassVar[str] = "samples"
    queries: ClassVar[tuple[str, ...]] = ()
    protocols: Sequence[str] = ("knn", "linear")
    baseline_name: ClassVar[str] = "raw samples"
    has_pictures: ClassVar[bool] = False
    view_factors: ClassVar[tuple[str, ...]] = ()
    walks_folders: ClassVar[bool] = False
    suffixes: ClassVar[frozenset[str]] = frozenset()
    takes_objects: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    # Recognizing data, and what a run on them starts from
    endings: ClassVar[tuple[str, ...]] = ()  # of file names that are of this kind

    @classmethod
    def owns_name(cls, data: str) -> bool:
        """Whether a name is of this kind, whatever the method: built-in data, or by a convention."""
        return False

    @classmethod
    def recognizes(cls, data: str) -> bool:
        """Whether the files at a path are of this kind."""
        return False

    @classmethod
    def defaults(cls, data: str) -> dict[str, Any]:
        """Settings that runs on this kind of data start from, and on built-in data of that name."""
        return {}

    @classmethod
    def automatic(cls, request: Request) -> Automatic:
        """Settings chosen from the data, the device and the time, over `defaults` and below what the user says."""
        return Automatic()

    @classmethod
    def complete(cls, given: Mapping[str, Any], merged: dict[str, Any]) -> None:
        """Settings that follow from others: `merged`, what the user gave with the defaults, is completed in place."""
        return

    def preset_of(self, presets: Mapping[str, Any]) -> str:
        """The name of the run's views, else of those that the method has for this kind of data."""
        name = self.config.views.preset or known_method(self.config.method).views_of(self.name)
        if name not in presets:
            raise ValueError(f"there are no views {name!r} of {self.noun}{nearest(name, set(presets))}")
        return name

    # Data

    @abstractmethod
    def open(self, spec: str, split: str | None = None) -> Dataset:
        """The samples that a name or path stands for; of a split, if one is named."""

    def own_splits(self, spec: str) -> tuple[str, str] | None:
        """The names of the training and the test part, if the data have them."""
        return None

    def fit(self, data: Dataset) -> TrainConfig:
        """Learn from training data what encoding depends on, such as a tokenizer; returns the completed settings."""
        return self.config

    def split(self, data: str | None = None, test: str | None = None, *, seed: int = 0) -> Splits:
        """Training, validation and test part.

        Args:
            data: None: the run's own data, split as in training. Else other data, for evaluation: their own split, or
                a fifth of each class held out by `seed`.
            test: other data for the test part.
        """
        from nearfar.modalities.splits import evaluation_splits, run_splits

        return run_splits(self) if data is None else evaluation_splits(self, data, test, seed=seed)

    def reading(self, read: DataConfig) -> Self:
        """The same modality, reading by other settings; the run's own `data.path` stays."""
        other = self.fitted_copy()
        other.config = replace(self.config, data=replace(read, path=self.config.data.path))
        return other

    def read_config_of(self, spec: str) -> DataConfig:
        """How to read these data: the run's own as the run read them, others as `read_config_of_others`."""
        own, other = (Path(each).expanduser().absolute() for each in (self.config.data.path, spec))
        return self.config.data if own == other else self.read_config_of_others(spec)

    def read_config_of_others(self, spec: str | None = None) -> DataConfig:
        """How to read other data than the run's: by the defaults, but samples are brought into the same form."""
        return DataConfig(stored_size=self.config.data.stored_size)

    def fitted_copy(self) -> Self:
        """A copy that shares what was learned."""
        return copy.copy(self)

    def open_to_embed(self, spec: str, split: str | None = None) -> Dataset:
        """The samples that `embed` writes one by one."""
        return self.open(spec, split)

    def for_training(self, data: Dataset) -> Dataset:
        """The training part as the method should see it."""
        return data

    def run_protocols(self, test: Dataset) -> Sequence[str]:
        """What is measured at the end of a run on this test part."""
        return self.protocols

    def ids(self, source: Dataset) -> Tensor:
        """(N,): samples with equal ids are never negatives of each other."""
        return source.groups if source.groups is not None else torch.arange(len(source))

    # From samples to the encoder

    @abstractmethod
    def encoder(self, *, untrained: bool = False) -> nn.Module:
        """A fresh encoder, its width in `num_features`.

        Args:
            untrained: draw the weights even if the run begins with given ones.
        """

    def trained_encoder(self, *, untrained: bool = False) -> nn.Module:
        """The same with the layers that the run's method leaves on it, if any: the network of a finished run."""
        network = self.encoder(untrained=untrained)
        features: int = network.num_features  # type: ignore[assignment]
        return known_method(self.config.method).trained_encoder(network, features, **self.config.options)

    @abstractmethod
    def prepare(self, samples: Tensor) -> Tensor:
        """(B, ...) raw samples to the encoder's input, without randomness."""

    @abstractmethod
    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        """What the method sees of a batch in training: the same seed and step always give the same.

        Args:
            samples: what `source.fetch(index)` gave, on the device.
            source: where they are from.
            index: (B,) their numbers there.
            part: the rows of the batch that these are, if several processes share it.
        """

    def views_of_rows(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> Callable[[slice], list[Tensor]]:
        """Rows of the batch to their views; the next call may overwrite what the last one gave."""
        whole = self.views(samples, source, index, seed=seed, step=step, shard=shard)
        return lambda rows: [view[rows] for view in whole]

    def guide_items(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[tuple[str, Any]]:
        """What `Encoder.encode` of a guide takes of each view, with its kind; one item may stand for all views."""
        return [(self.queries[0], samples)]

    def forget_buffers(self) -> None:
        """Free memory that is kept from one batch to the next."""
        return

    local_views: int = 0  # of the last of the views: those of small parts

    def as_batch(
        self, views: Sequence[Tensor], source: Dataset, index: Tensor, ids: Tensor, labels: Tensor | None = None
    ) -> Batch:
        """What `views` made of samples of the source, as a method takes it."""
        return Batch(views, index, ids, labels, local=self.local_views)

    views_in_rows: ClassVar[bool] = False  # whether `views_of_rows` saves memory
    reads_texts: ClassVar[bool] = False  # whether the encoder has a text input

    @abstractmethod
    def pair_of_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        """Two views that should be alike, for validation, even if the method takes only one."""

    def vary(self, samples: Tensor, generator: torch.Generator, *, strong: bool = False) -> Tensor:
        """Raw samples, each varied at random: for protocols that augment; `strong` as the method's views are."""
        raise ValueError(f"{self.noun} have no augmentation; leave out the protocols that need one")

    def method_options(self) -> dict[str, Any]:
        """Options of methods that the data know better than the defaults; a method takes those that it has."""
        return {}

    # Beside the encoder

    @property
    def raw_prepare(self) -> Prepare | None:
        """Raw samples to the baseline "raw", if `prepare` does more than bring them into form."""
        return None

    def prepare_unresized(self, samples: Tensor) -> Tensor:
        """(B, 3, H, W) raw images to the encoder's input at their own size: for detection."""
        raise ValueError(f"{self.noun} have no boxes, which detection needs")

    def baseline(self, train: Dataset, test: Dataset) -> Baseline | None:
        """What prepared samples are worth before anything is learned, as an encoder; None: their values.

        No label may be used.
        """
        return None

    def further_baselines(self) -> dict[str, Baseline]:
        """Beside "raw", what else is cheap and known to be strong on such samples, by its name in the result rows.

        No label may be used.
        """
        return {}

    def native_side(self) -> int | None:
        """Median side of the training images in pixels as they are on disk; None if that is not known."""
        return None

    # Single items, for `encode`, search and the explorer

    @abstractmethod
    def read(self, item: Any, kind: str | None = None) -> Tensor:
        """One raw sample: from a path, a file object, a PIL image, an array, a tensor or a string."""

    def collate(self, samples: Sequence[Tensor]) -> Tensor:
        """Raw samples of `read` as a batch."""
        return torch.stack(list(samples))

    def batch(self, items: Sequence[Any], kind: str | None = None) -> Tensor:
        """Items of one kind as a batch of raw samples."""
        return self.collate([self.read(item, kind) for item in items])

    def item_kind(self, item: Any) -> str:
        """Which of `queries` an item is, if the caller does not say."""
        return self.queries[0]

    def run_encoder(self, network: nn.Module, x: Tensor, kind: str) -> Tensor:
        """(B, F) of prepared input of that kind."""
        h: Tensor = network(x)
        return h

    def check_batch(self, samples: Tensor, kind: str) -> Tensor:
        """A tensor of raw samples (B, ...) as a user gives it, in the form that `fetch` has; refuses other shapes."""
        return samples

    def read_upload(self, content: bytes, *, pixels: int, seconds: float) -> Tensor:
        """One raw sample from the bytes of a file that a stranger sent, within limits of size."""
        raise ValueError(f"{self.noun} cannot be uploaded")

    def find(
        self, spec: str | None, split: str | None = None, within: Path | None = None, *, side: int | None = None
    ) -> NamedSamples:
        """Samples by name, one at a time, at `side` pixels, for search and the explorer. Nothing is downloaded.

        `spec` is as `open` takes it, None if it is not known; `within` a folder that no file may leave.
        """
        read = self.read_config_of_others() if spec is None else self.read_config_of(spec)
        reader = self.reading(replace(read, stored_size=side or read.stored_size))
        return NamedSamples(reader, spec, split, within)

    def source(self, spec: str, split: str | None = None) -> SamplesByRow:
        """Single samples by row, without decoding the rest if that is possible."""
        data = self.open(spec, split)
        return SamplesByRow(data.names, lambda row, root: data.fetch(torch.tensor([row]))[0])

    def thumbnails(self, samples: Tensor, side: int) -> NDArray[np.uint8] | None:
        """(B, ...) raw samples to pictures (B, s, s, 3), s at most `side`; None if they have no picture."""
        return None

    def seconds_per_frame(self, hop: int) -> float:
        """The time from one frame of the encoder to the next; in steps if the data have no rate."""
        return float(hop)

    def audio(self, sample: Tensor) -> tuple[NDArray[np.int16], int] | None:
        """One raw sample as sound and its sample rate; None if it cannot be heard."""
        return None

    # Files

    def card(self) -> dict[str, Any]:
        """How to feed the encoder, for the card beside its weights."""
        return {"modality": self.name}

    def from_array(self, samples: Any, kind: str | None = None) -> tuple[Any, bool]:
        """An array or tensor as items by number, and whether it is a single one: by default each row is an item."""
        return samples, False

    def save(self, folder: Path) -> None:
        """Write what `fit` learned, if it does not fit on the card."""
        return

    def save_library_model(self, network: nn.Module, folder: Path, transform: nn.Module | None = None) -> str | None:
        """Write an encoder as other libraries read it; a line about what opens it if they cannot. None by default."""
        return None

    def tokenizer_file(self, folder: Path, name: str) -> Path | None:
        """Write the tokenizer beside a graph of the encoder, if there is one."""
        return None

    @classmethod
    def load(cls, config: TrainConfig, card: Mapping[str, Any], folder: Path) -> Self:
        """The modality of a finished run or an export."""
        return cls(config)

    @classmethod
    def check_card(cls, card: Mapping[str, Any], path: Path) -> None:
        """Refuse a card that `load` could not use."""
        return

    def show(self, source: Dataset, folder: Path) -> str:
        """Show the user what the method sees, in the run folder; a line that says where."""
        return f"views: {self.config.views.preset or 'default'}"
