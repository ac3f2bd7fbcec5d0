"""One query against a file of embeddings: results as a table and as a contact sheet."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from nearfar.messages import shorten_path
from nearfar.model.encoder import Encoder
from nearfar.search.contact_sheet import CELL, contact_sheet
from nearfar.search.files import Embeddings
from nearfar.search.index import Kind, lookup
from nearfar.search.query import encode_query, vector_of
from nearfar.search.search import search
from nearfar.search.thumbnails import query_picture, thumbnails

_NARROWEST = 24  # columns of a path


@dataclass(frozen=True)
class PathCell:
    """A path in a table: cut in the middle where the column is narrow, so that the file's name can be read."""

    path: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text(shorten_path(self.path, options.max_width), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(len(self.path), _NARROWEST), len(self.path))


@dataclass(frozen=True)
class SearchResult:
    """A query, and its nearest rows, most similar first."""

    item: Any  # a path, a text, a picture, ...; of kind "like" a name
    kind: str
    similarities: list[float]
    rows: list[int]


class Finder:
    """A file of embeddings and the encoder that made it."""

    def __init__(self, encoder: Encoder, file: Embeddings) -> None:
        self.encoder, self.file = encoder, file
        self.names, self.labels = file.names(), file.labels()

    def find(self, item: Any, kind: str, *, k: int, index: Kind = "exact", effort: int = 64) -> SearchResult:
        """The k nearest rows; arguments as in `encode_query` and `lookup`; kind "like": a name in the file."""
        encode = partial(encode_query, kind=kind) if kind != "like" else vector_of
        query = encode(self.encoder, self.file, item)
        hits = search(query, self.file, k=k, find=lookup(self.file, index, effort=effort))
        found = hits.rows[0] >= 0
        return SearchResult(item, kind, hits.similarities[0][found].tolist(), hits.rows[0][found].tolist())

    def table(self, found: SearchResult) -> Table:
        """Similarity, name and label of each result."""
        table = Table(
            "similarity", "path" if self.encoder.modality.has_pictures else "text", *(["label"] if self.labels else [])
        )
        for similarity, row in zip(found.similarities, found.rows, strict=True):
            label = [escape(self.labels[row] or "")] if self.labels else []
            name = self.names[row]
            shown = PathCell(name) if self.encoder.modality.has_pictures else escape(name)
            table.add_row(f"{similarity:.4f}", shown, *label)
        return table

    def write_sheet(self, found: SearchResult, out: Path, *, data: str | None = None) -> list[str]:
        """Write the contact sheet; returns why some samples cannot be shown.

        Args:
            found: what to show.
            out: a .png.
            data: where the samples are, if not where the file says.
        """
        names = [self.names[row] for row in found.rows]
        modality, where = self.encoder.modality, self.file.location(data)
        pictures, missing = thumbnails(modality, names, where, size=CELL)
        if len(missing) == len(names):
            raise ValueError(f"no contact sheet: none of the samples can be shown ({missing[0]}); give --data")
        if found.kind == "like":
            query = thumbnails(modality, [found.item], where, size=CELL)[0][0]
        elif found.kind == "text":
            query = np.full((CELL, CELL, 3), 255, np.uint8)
        else:
            query = query_picture(modality, found.item, CELL)
        title = found.item if found.kind == "text" else "query"
        contact_sheet(query, pictures, found.similarities, names, out, title=title)
        return missing
