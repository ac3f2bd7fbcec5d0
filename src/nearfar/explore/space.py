"""A run in the explorer: its embeddings in memory, their map, and queries answered in batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nearfar.explore.layout import Layout, file_key, map_points
from nearfar.losses.arguments import l2_normalize
from nearfar.losses.engine.top_k import top_k_similarity
from nearfar.messages import one_line
from nearfar.model.encoder import Encoder
from nearfar.search.files import Embeddings
from nearfar.search.query import check_maker, with_size_of
from nearfar.search.search import Hits, InMemory, Lookup, search

THUMBNAIL = 96  # pixels
MAX_BYTES = 8 << 30  # of vectors in memory


class Space:
    """N samples as unit vectors with names and labels, and the encoder that embeds queries.

    Args:
        encoder: that made the vectors.
        file: written by `nearfar embed`.
        data: where the samples are, if not where the file says.
        layout: of the map.

    Attributes:
        names: N texts.
        classes: names of the labels in sorted order; empty without labels.
        codes: (N,) int64, numbers of the labels, -1 for none.
        points: (N, 2) float32, the map.
    """

    def __init__(self, encoder: Encoder, file: Embeddings, *, data: str | None = None, layout: Layout = "pca") -> None:
        check_maker(encoder, file)
        if encoder.num_features != file.dim:
            raise ValueError(
                f"{file.path} has vectors of {file.dim} numbers and the encoder gives {encoder.num_features}; embed "
                "the data again with this run"
            )
        if 4 * len(file) * file.dim > MAX_BYTES:
            held = f"{4 * len(file) * file.dim / 2**30:.0f} GiB of vectors, more than {MAX_BYTES >> 30}"
            raise ValueError(f"{file.path} has {held} that fit in memory here; explore part of the data")
        self.encoder, self.file = with_size_of(encoder, file).eval(), file
        self.samples = self.encoder.modality.find(*file.location(data), side=THUMBNAIL)
        self.names = list(file.names())
        self._row_of: dict[str, int] | None = None
        labels = file.labels()
        self.classes = sorted({label for label in labels or () if label is not None}, key=_natural)
        number = {label: code for code, label in enumerate(self.classes)}
        self.codes = torch.tensor([-1 if x is None else number[x] for x in labels or [None] * len(file)])
        self.vectors = InMemory(l2_normalize(torch.cat([x for _, x in file.pieces()])))
        self.points = map_points(self.vectors.rows, layout, key=file_key(file.path))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kind(self) -> str:
        """Of the samples: "image", "sound", "series", "text"."""
        return self.encoder.modality.queries[0]

    def row_of(self, name: str) -> int | None:
        if self._row_of is None:
            self._row_of = {each: row for row, each in enumerate(self.names)}
        return self._row_of.get(name)

    def label(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.classes[code]

    def packed(self) -> bytes:
        """x, y and label number (-1 for none) of each sample, float32 little-endian."""
        table = np.concatenate([self.points, self.codes.numpy()[:, None].astype(np.float32)], 1)
        return table.astype("<f4").tobytes()


@dataclass(frozen=True, eq=False)
class Query:
    """One request to embed and, where `k` is not 0, to search.

    Attributes:
        what: a text, or (3, S, S) uint8, (T,) int16 as `Modality.read_upload` gives them, or (F,) a vector.
        label: only samples with this label are searched.
        without: row of the query itself, which is left out.
    """

    space: Space
    what: str | Tensor
    k: int = 0
    label: str | None = None
    without: int | None = None


@dataclass(frozen=True, eq=False)
class Answer:
    """(F,) the query as a vector, and (k,) cosines and rows of the nearest samples."""

    vector: Tensor
    similarities: Tensor
    rows: Tensor


@torch.no_grad()
def answer(queries: list[Query]) -> list[Answer | Exception]:
    """The answer to each query: one forward pass for all images, one for all texts, one search for each label."""
    vectors = _embed(queries)
    nothing = torch.empty(0), torch.empty(0, dtype=torch.long)
    found: list[Answer | Exception] = [x if isinstance(x, Exception) else Answer(x, *nothing) for x in vectors]
    together: dict[tuple[int, str | None], list[int]] = {}
    for place, (query, x) in enumerate(zip(queries, vectors, strict=True)):
        if query.k and isinstance(x, Tensor):
            together.setdefault((id(query.space), query.label), []).append(place)
    for (_, label), places in together.items():
        space = queries[places[0]].space
        x = torch.stack([x for place in places if isinstance(x := vectors[place], Tensor)])  # (Q, F)
        most = max(queries[place].k + (queries[place].without is not None) for place in places)
        hits = _nearest(space, x, most, label)
        for row, place in enumerate(places):
            query = queries[place]
            keep = hits.rows[row] != (-1 if query.without is None else query.without)
            similarities, rows = hits.similarities[row][keep], hits.rows[row][keep].long()
            found[place] = Answer(x[row], similarities[: query.k], rows[: query.k])
    return found


def _nearest(space: Space, x: Tensor, k: int, label: str | None) -> Hits:
    if label is None:
        return search(x, space.vectors, k=k, find=_exact(space.vectors.rows))
    rows = (space.codes == space.classes.index(label)).nonzero()[:, 0]
    few = InMemory(space.vectors.rows[rows])
    hits = search(x, few, k=k, find=_exact(few.rows))
    return Hits(hits.similarities, rows[hits.rows])


def _exact(rows: Tensor) -> Lookup:
    """Compare every row; they are normalised already, and to repeat it would take longer than the search."""
    return lambda query, k: Hits(*top_k_similarity(query, rows, k=k))


def _embed(queries: Sequence[Query]) -> list[Tensor | Exception]:
    """(F,) of each query, or the error."""
    found: list[Tensor | Exception] = [ValueError("it could not be embedded")] * len(queries)
    together: dict[tuple[int, str], list[int]] = {}
    for place, query in enumerate(queries):
        what = query.what
        if isinstance(what, str):
            kind = "text"
        elif what.dtype == torch.int16:
            kind = f"sound {place}"  # lengths differ: one at a time, so that none is padded
        else:
            kind = "vector" if what.is_floating_point() else "picture"
        together.setdefault((id(query.space), kind), []).append(place)
    for (_, kind), places in together.items():
        try:
            made = _encode(queries[places[0]].space, kind, [queries[place].what for place in places])
        except Exception as error:  # the others are still answered
            for place in places:
                found[place] = ValueError(f"it could not be embedded: {one_line(error)}")
            continue
        for place, x in zip(places, made, strict=True):
            found[place] = x if bool(x.isfinite().all()) else ValueError("its embedding is not finite")
    return found


def _encode(space: Space, kind: str, what: Sequence[str | Tensor]) -> Tensor:
    """(B, F)."""
    if kind == "text":
        return space.encoder.encode(list(what), kind="text")
    batch = torch.stack([x for x in what if isinstance(x, Tensor)])
    return batch.cpu().float() if kind == "vector" else space.encoder.encode(batch)


def _natural(text: str) -> tuple[int, float, str]:
    """Sorts numbers by value, before other texts."""
    return (0, float(text), text) if text.isascii() and text.isdigit() and len(text) < 16 else (1, 0.0, text)


@dataclass(frozen=True)
class ExploredRun:
    """A run in the explorer."""

    name: str
    folder: Path | None  # None for an encoder that is no run
    space: Space | None  # None while it has no encoder
    again: Callable[[], "ExploredRun | None"] | None = None  # opens a run that was in training, once it is finished
