"""A run as the page sees it: its embeddings in memory, a map of them, and queries answered in batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.explore.layout import Layout, file_key, plane
from nearfar.explore.limits import Limits
from nearfar.explore.sample_files import Samples
from nearfar.losses.arguments import unit
from nearfar.losses.engine.top_k import top_k_similarity
from nearfar.modalities.image.data.decode import decode
from nearfar.modalities.image.data.decode import why as why_blind
from nearfar.modalities.image.data.opening import decoding_size
from nearfar.modalities.sound.files import decode_sound
from nearfar.modalities.sound.files import why as why_silent
from nearfar.model.encoder import Encoder, Loaded, SeriesModel, SoundModel, TextModel
from nearfar.search.files import Embeddings
from nearfar.search.search import Hits, InMemory, Lookup, search

MOST = 8 << 30  # bytes of vectors that are held in memory
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # what may be uploaded


class Space:
    """N samples as unit vectors, their names and labels, and the encoder that puts more into the same space.

    Args:
        encoder: what made the vectors.
        file: of `nearfar embed`.
        data: where the samples are, if not where the file says.
        layout: of the map.

    Attributes:
        names: N texts.
        classes: names of the labels in sorted order; empty without labels.
        codes: (N,) int64, which of them, -1 for none.
        points: (N, 2) float32, the map.
    """

    def __init__(
        self,
        encoder: Loaded,
        file: Embeddings,
        *,
        data: str | None = None,
        layout: Layout = "pca",
    ) -> None:
        stated = file.about.get("encoder")
        if stated is not None and stated != encoder.digest():
            raise ValueError(f"{file.path} was made by another encoder than this; embed the data again with this run")
        if stated is None and encoder.num_features != file.dim:
            raise ValueError(
                f"{file.path} has vectors of {file.dim} numbers and the encoder gives {encoder.num_features}; embed "
                "the data again with this run"
            )
        if 4 * len(file) * file.dim > MOST:
            held = f"{4 * len(file) * file.dim / 2**30:.0f} GiB of vectors, more than {MOST >> 30}"
            raise ValueError(f"{file.path} has {held} that are held in memory; explore a part of the data")
        self.encoder, self.file = encoder.eval(), file
        where, split = data or file.about.get("data"), file.about.get("split")
        self.samples = Samples(encoder, where, split)
        self.names = list(file.names())
        self._row_of: dict[str, int] | None = None
        labels = file.labels()
        self.classes = sorted({label for label in labels or () if label is not None}, key=_natural)
        number = {label: code for code, label in enumerate(self.classes)}
        self.codes = torch.tensor([-1 if x is None else number[x] for x in labels or [None] * len(file)])
        self.vectors = InMemory(unit(torch.cat([x for _, x in file.pieces()])))
        self.points = plane(self.vectors.rows, layout, key=file_key(file.path))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kind(self) -> Literal["image", "sound", "series", "text"]:
        """Of the samples."""
        match self.encoder:
            case SoundModel():
                return "sound"
            case SeriesModel():
                return "series"
            case TextModel():
                return "text"
        return "image"

    @property
    def reads(self) -> bool:
        """Whether texts can be asked for."""
        return callable(getattr(self.encoder, "embed_texts", None))

    def row_of(self, name: str) -> int | None:
        if self._row_of is None:
            self._row_of = {each: row for row, each in enumerate(self.names)}
        return self._row_of.get(name)

    def label(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.classes[code]

    def packed(self) -> bytes:
        """N times x, y and the number of the label (-1 for none), float32 little-endian."""
        table = np.concatenate([self.points, self.codes.numpy()[:, None].astype(np.float32)], 1)
        return table.astype("<f4").tobytes()

    # What a user brings

    def picture(self, content: bytes, limits: Limits) -> Tensor:
        """(3, S, S) uint8, decoded as the file's pictures were."""
        size = self.file.about.get("size")
        encoder = self.encoder
        assert isinstance(encoder, Encoder)
        side = size if isinstance(size, int) and 1 <= size <= 4096 else decoding_size(encoder.preparation.size)
        try:
            found = decode(BytesIO(content), side, pixel_limit=limits.pixels, formats=FORMATS)
        except Exception as error:  # Pillow raises of every kind on broken files
            raise ValueError(f"it cannot be read as a picture: {why_blind(error)}") from None
        return torch.from_numpy(found.copy()).permute(2, 0, 1)

    def sound(self, content: bytes, limits: Limits) -> Tensor:
        """(T,) int16."""
        encoder = self.encoder
        assert isinstance(encoder, SoundModel)
        try:
            found: NDArray[np.int16] = decode_sound(BytesIO(content), encoder.rate, seconds=limits.seconds).values
        except ModuleNotFoundError:
            raise
        except Exception as error:  # soundfile raises of several kinds on broken files
            raise ValueError(f"it cannot be read as a sound: {why_silent(error)}") from None
        return torch.from_numpy(found[: round(encoder.modality.config.sound.longest * encoder.rate)])


@dataclass(frozen=True, eq=False)
class Query:
    """One request to embed, and to search with where `k` says how many are wanted.

    Attributes:
        what: a text, or (3, S, S) uint8, (T,) int16 as `Space.picture` and `Space.sound` give them, or (F,) a vector.
        label: only samples with this label are looked at.
        without: a row that is left out: the query itself.
    """

    space: Space
    what: str | Tensor
    k: int = 0
    label: str | None = None
    without: int | None = None


@dataclass(frozen=True, eq=False)
class Answer:
    """(F,) the query as a vector, and (k,) cosines and rows of what is nearest."""

    vector: Tensor
    similarities: Tensor
    rows: Tensor


@torch.no_grad()
def answer(queries: list[Query]) -> list[Answer | Exception]:
    """What each query finds: one forward pass for all pictures, one for all texts, one look through the rows."""
    vectors = _embedded(queries)
    found: list[Answer | Exception] = [_plain(x) for x in vectors]
    together: dict[tuple[int, str | None], list[int]] = {}
    for place, (query, x) in enumerate(zip(queries, vectors, strict=True)):
        if query.k and isinstance(x, Tensor):
            together.setdefault((id(query.space), query.label), []).append(place)
    for (_, label), places in together.items():
        space = queries[places[0]].space
        x = torch.stack([_tensor(vectors[place]) for place in places])  # (Q, F)
        most = max(queries[place].k + (queries[place].without is not None) for place in places)
        hits = _nearest(space, x, most, label)
        for row, place in enumerate(places):
            query = queries[place]
            keep = hits.rows[row] != (-1 if query.without is None else query.without)
            found[place] = Answer(
                x[row], hits.similarities[row][keep][: query.k], hits.rows[row][keep][: query.k].long()
            )
    return found


def _nearest(space: Space, x: Tensor, k: int, label: str | None) -> Hits:
    if label is None:
        return search(x, space.vectors, k=k, find=_among(space.vectors.rows))
    rows = (space.codes == space.classes.index(label)).nonzero()[:, 0]
    few = InMemory(space.vectors.rows[rows])
    hits = search(x, few, k=k, find=_among(few.rows))
    return Hits(hits.similarities, rows[hits.rows])


def _among(rows: Tensor) -> Lookup:
    """Every row is compared; they are unit rows already, and to make them so again would take longer than all else."""
    return lambda query, k: Hits(*top_k_similarity(query, rows, k=k))


def _plain(x: Tensor | Exception) -> Answer | Exception:
    return x if isinstance(x, Exception) else Answer(x, torch.empty(0), torch.empty(0, dtype=torch.long))


def _tensor(x: Tensor | Exception) -> Tensor:
    assert isinstance(x, Tensor)
    return x


def _embedded(queries: Sequence[Query]) -> list[Tensor | Exception]:
    """(F,) of each, or why not."""
    found: list[Tensor | Exception] = [ValueError("it could not be embedded")] * len(queries)
    together: dict[tuple[int, str], list[int]] = {}
    for place, query in enumerate(queries):
        what = query.what
        if isinstance(what, str):
            kind = "text"
        elif what.dtype == torch.int16:
            kind = f"sound {place}"  # of any length: each for itself, so that none is padded by another
        else:
            kind = "vector" if what.is_floating_point() else "picture"
        together.setdefault((id(query.space), kind), []).append(place)
    for (_, kind), places in together.items():
        try:
            made = _encoded(queries[places[0]].space, kind, [queries[place].what for place in places])
        except Exception as error:  # whatever the encoder cannot take is told, and the others go on
            for place in places:
                found[place] = ValueError(f"it could not be embedded: {' '.join(str(error).split())[:200]}")
            continue
        for place, x in zip(places, made, strict=True):
            found[place] = x if bool(x.isfinite().all()) else ValueError("its embedding is not finite")
    return found


def _encoded(space: Space, kind: str, what: Sequence[str | Tensor]) -> Tensor:
    """(B, F)."""
    encoder = space.encoder
    if kind == "text":
        embed_texts = getattr(encoder, "embed_texts")  # noqa: B009, since a plain encoder has none
        made: Tensor = embed_texts(list(what))
    elif kind == "vector":
        made = torch.stack([x for x in what if isinstance(x, Tensor)])
    else:
        batch = torch.stack([x for x in what if isinstance(x, Tensor)])
        assert not isinstance(encoder, TextModel)
        device = next(encoder.parameters()).device
        made = encoder.embed(batch.to(device))
    return made.cpu().float()


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers by their value, before words."""
    return (0, float(text), text) if text.isascii() and text.isdigit() and len(text) < 16 else (1, 0.0, text)


@dataclass(frozen=True)
class Run:
    """A run that is shown: its folder, where it has one, and its space, where it has an encoder.

    Attributes:
        again: opens it anew; None while there is nothing more to see.
    """

    name: str
    folder: Path | None
    space: Space | None
    again: Callable[[], "Run | None"] | None = None
