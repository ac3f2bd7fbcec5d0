"""The trained encoder: what every run, export, foreign checkpoint and library model opens as."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.data.class_folders import Level
from nearfar.data.dataset import Dataset
from nearfar.modalities.base import Modality
from nearfar.model.card import Card
from nearfar.model.hub import HubMixin
from nearfar.model.items import as_items, some_items
from nearfar.nn.first_features import keep_first
from nearfar.nn.sequence import FrameEncoder
from nearfar.nn.whitening import EmbeddingTransform
from nearfar.progress import progress_bar


class EncodeOptions(TypedDict, total=False):
    """Further parameters of `Encoder.encode`."""

    kind: str | None
    raw: bool
    batch_size: int
    progress: bool


class Encoder(nn.Module, HubMixin):
    """A network with its modality: items in, embeddings out.

    Attributes:
        backbone: the network, prepared input (B, ...) to features (B, F).
        transform: features to embeddings (B, F), centred, standardized or whitened; None: they are the same.
        modality: opens, reads and prepares samples.
        card: where it comes from and how to feed it.
        num_features: F.
        folder: of the run or export that it was loaded from, or None.

    >>> encoder = nearfar.load("runs/mine")  # doctest: +SKIP
    >>> features = encoder.encode(["a.jpg", "b.jpg"])  # (2, F)  # doctest: +SKIP
    """

    def __init__(
        self,
        backbone: nn.Module,
        modality: Modality,
        card: Card,
        *,
        features: int | None = None,
        transform: EmbeddingTransform | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__()
        self.backbone, self.modality, self.card = backbone, modality, card
        self.transform, self.folder = transform, folder
        self.num_features: int = backbone.num_features if features is None else features  # type: ignore[assignment]
        temperature = card.get("temperature")
        self.logit_scale = 1 / temperature if isinstance(temperature, float) and temperature > 0 else 100.0

    @property
    def device(self) -> torch.device:
        first = next(self.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    @property
    def reads_texts(self) -> bool:
        """Whether it has a text input."""
        return self.modality.reads_texts

    @property
    def has_frames(self) -> bool:
        """Whether it gives a row for every frame in time."""
        return isinstance(self.backbone, FrameEncoder)

    def prepare(self, samples: Tensor) -> Tensor:
        """(B, ...) raw samples, as the data give them, to the network's input."""
        return self.modality.prepare(samples)

    def forward(self, x: Tensor) -> Tensor:
        """Prepared input to embeddings (B, F); `encode` takes samples as they are."""
        h = self.features(x)
        return h if self.transform is None else self.transform(h)

    def features(self, x: Tensor) -> Tensor:
        """Prepared input to the network's own output (B, F), before the transform."""
        return self.modality.run_encoder(self.backbone, x, self.modality.queries[0])

    def without_transform(self) -> "Encoder":
        """The same network without the transform: for training it further."""
        if self.transform is None:
            return self
        plain = Encoder(self.backbone, self.modality, self.card, features=self.num_features)
        return plain.train(self.training)

    def first(self, features: int) -> "Encoder":
        """The same encoder, of whose embeddings the first numbers are kept: for runs that were trained so
        (`--options.dims`)."""
        if not 1 <= features <= self.num_features:
            raise ValueError(f"dim is {features}, expected from 1 to {self.num_features}, the width of the embeddings")
        if features == self.num_features:
            return self
        transform = None if self.transform is None else self.transform.first(features)
        network = keep_first(self.backbone, features)
        made = Encoder(network, self.modality, self.card, transform=transform, folder=self.folder)
        return made.train(self.training)

    @overload
    def encode(self, items: Any, *, numpy: Literal[False] = False, **options: Unpack[EncodeOptions]) -> Tensor: ...

    @overload
    def encode(self, items: Any, *, numpy: Literal[True], **options: Unpack[EncodeOptions]) -> NDArray[np.float32]: ...

    @torch.no_grad()
    def encode(
        self,
        items: Any,
        *,
        kind: str | None = None,
        raw: bool = False,
        batch_size: int = 256,
        progress: bool = False,
        numpy: bool = False,
    ) -> Tensor | NDArray[np.float32]:
        """The embeddings of items, (N, F) on the CPU; of a single item (F,).

        Args:
            items: a path, a PIL image or a string, or a sequence of them, of arrays or of tensors, as the modality
                takes them; a tensor of raw samples (N, ...), such as images (N, 3, H, W) uint8, or an array of them
                (N, H, W, 3); a frame with a column of paths or texts; a map-style Dataset; a folder.
            kind: what the items are, "image" or "text", for an encoder of both; found out if it is not given.
            raw: the network's own features, before they are centred, standardized or whitened.
            batch_size: items at a time.
            progress: show a bar.
            numpy: return an array instead of a tensor.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected at least 1")
        items, single = as_items(items, self.modality, kind)
        if len(items) == 0:
            raise ValueError("items is empty, expected at least one")
        kind = kind or self._kind_of(items)
        if kind not in self.modality.queries:
            raise ValueError(f"kind is {kind!r}, and this encoder takes {' or '.join(self.modality.queries)}")
        items = self.modality.check_batch(items, kind) if isinstance(items, Tensor) else items
        found = []
        training, device = self.training, self.device
        self.eval()
        try:
            with progress_bar(progress and "encoding", len(items)) as advance:
                for start in range(0, len(items), batch_size):
                    some = self._batch(items, start, start + batch_size)
                    h = self._encode_batch(some, kind, device)
                    found.append((h if raw or self.transform is None else self.transform(h)).float().cpu())
                    advance(len(some))
        finally:
            self.train(training)
        h = torch.cat(found)[0] if single else torch.cat(found)
        return h.numpy() if numpy else h

    @staticmethod
    def _batch(items: Any, start: int, stop: int) -> Any:
        if isinstance(items, Dataset):
            return items.fetch(torch.arange(start, min(stop, len(items))))
        return some_items(items, start, stop)

    def _kind_of(self, items: Any) -> str:
        """Of all items, so that it does not depend on the batches."""
        if isinstance(items, Tensor | Dataset) or len(self.modality.queries) == 1:
            return self.modality.queries[0]
        kinds = {self.modality.item_kind(items[row]) for row in range(len(items))}
        if len(kinds) > 1:
            raise ValueError(f"items are of the kinds {' and '.join(sorted(kinds))}; encode each kind separately")
        return kinds.pop()

    def _encode_batch(self, items: Any, kind: str, device: torch.device) -> Tensor:
        modality = self.modality
        x = (items if isinstance(items, Tensor) else modality.batch(items, kind)).to(device)
        return modality.run_encoder(self.backbone, x if kind == "text" else self.prepare(x), kind)

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Prepared input to (B, L, D) and (B, L) booleans, False behind the end; of encoders that have frames."""
        return self._frame_encoder.frames(x)

    @property
    def seconds_per_frame(self) -> float:
        """Time from one frame to the next; in steps if the data have no rate."""
        return self.modality.seconds_per_frame(self._frame_encoder.hop)

    @property
    def _frame_encoder(self) -> FrameEncoder:
        if not isinstance(self.backbone, FrameEncoder):
            raise ValueError(f"the encoder {self.card.get('backbone')!r} gives no frames; has_frames tells which do")
        return self.backbone

    def open(
        self,
        spec: str | Path,
        split: str | None = None,
        *,
        labels: bool | Level | None = None,
        size: int | None = None,
        **columns: str | None,
    ) -> Dataset:
        """Data of the encoder's kind, to embed; the run's own data as the run read them.

        Args:
            labels: which sub-folders are labels; None: as the run had it, for other data no.
            size: pixels at which image files are decoded; None: as in training.
            columns: path_column, label_column and root of a table, as in `ReadConfig`; None: as the run had them.
        """
        read = self.modality.read_config_of(str(spec))
        asked = {"labels": labels, "stored_size": size, **columns}
        given = {name: value for name, value in asked.items() if value is not None}
        return self.modality.reading(replace(read, **given)).open_to_embed(str(spec), split)  # type: ignore[arg-type]

    def digest(self) -> str:
        """A short text that changes as soon as any weight or the preparation does."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(repr([self.card["backbone"], self.card.get("preprocessing")]).encode())
        digest.update(repr([self.card.get("mean"), self.card.get("std")]).encode())
        weights = dict(sorted(self.backbone.state_dict().items()))
        if self.transform is not None:
            weights |= {f"transform.{name}": x for name, x in sorted(self.transform.state_dict().items())}
        for name, x in weights.items():
            digest.update(name.encode())
            digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()
