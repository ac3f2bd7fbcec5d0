"""`nearfar.search`: the samples most similar to a query, in a file of embeddings."""

import base64
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearfar.data.python_data import as_data
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.notebook import Printed
from nearfar.python_objects import newly_registered, release
from nearfar.search.embed import Embedded
from nearfar.search.files import Embeddings, sample_embeddings
from nearfar.search.find import Finder, SearchResult
from nearfar.search.index import Kind


@dataclass(frozen=True)
class SimilarSamples(Printed):
    """The nearest samples of a query, most similar first; a notebook shows their pictures, too.

    Attributes:
        names, similarities: K each; the names are those of the file.
        labels: K, or None if the file has none.
        rows: K row numbers of the file.
    """

    names: list[str]
    similarities: list[float]
    labels: list[str | None] | None
    rows: list[int]
    finder: Finder = field(repr=False)
    result: SearchResult = field(repr=False)
    data: str | None = field(default=None, repr=False)  # where the samples are, if not where the file says

    def __len__(self) -> int:
        return len(self.names)

    def shown(self) -> Any:
        return self.finder.table(self.result)

    @property
    def has_pictures(self) -> bool:
        """Whether samples can be drawn; sentences are listed."""
        return self.finder.encoder.modality.has_pictures

    def write_sheet(self, out: str | Path) -> list[str]:
        """Write a contact sheet, a .png; returns why some samples cannot be shown."""
        path = Path(out).expanduser()
        if path.suffix.lower() != ".png":
            raise ValueError(f"the contact sheet is {str(path)!r}, expected a name that ends in .png")
        if not self.has_pictures:
            raise ValueError(f"there is no contact sheet of {self.finder.encoder.modality.noun}: they are listed")
        return self.finder.write_sheet(self.result, path, data=self.data)

    def _repr_html_(self) -> str:
        table = super()._repr_html_()
        if not self.has_pictures:
            return table
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sheet.png"
            try:
                self.write_sheet(path)
            except (OSError, ValueError):  # the samples have moved: the table still names them
                return table
            content = base64.b64encode(path.read_bytes()).decode()
        return f'<img alt="The query and the samples most similar to it" src="data:image/png;base64,{content}">{table}'


def search(
    run: str | Path | Encoder,
    embeddings: str | Path | Embedded | Embeddings,
    query: Any = None,
    *,
    kind: str | None = None,
    like: str | None = None,
    k: int = 20,
    index: Kind = "exact",
    effort: int = 64,
    data: Any = None,
    out: str | Path | None = None,
) -> SimilarSamples:
    """The samples most similar to a query, in a file of embeddings.

    Args:
        run: the encoder of the embeddings, or its name as `nearfar.load` takes it.
        embeddings: what `nearfar.embed` wrote, or its path.
        query: an item as `Encoder.encode` takes it: a path, a PIL image, an array, a text.
        kind: what it is, "image", "sound" or "text"; found out if it is not given.
        like: in place of a query, a sample of the file by its name there.
        k: number of results.
        index: "exact", or "ivf" or "hnsw" of faiss.
        effort: of ivf and hnsw: more finds more.
        data: where the samples are, if they moved since they were embedded or were objects.
        out: write a contact sheet, a .png; None: none.

    >>> found = nearfar.search("runs/photos", "photos.parquet", "query.jpg", k=5)  # doctest: +SKIP
    >>> found.names  # doctest: +SKIP
    """
    if (query is None) == (like is None):
        seen = "query and like were" if like is not None else "neither query nor like was"
        raise ValueError(f"{seen} given, expected one of them")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k is {k!r}, expected a whole number of at least 1")
    file = _file(embeddings)
    size = file.about.get("image_size")
    encoder = run if isinstance(run, Encoder) else load(run, image_size=size if isinstance(size, int) else None)
    if file.about and file.dim < encoder.num_features:  # `embed --dim`; a file that says nothing is compared as it is
        encoder = encoder.first(file.dim)
    finder = Finder(encoder, file)
    kind = "like" if query is None else kind or encoder.modality.item_kind(query)
    result = finder.find(like if query is None else query, kind, k=k, index=index, effort=effort)
    names, labels = [finder.names[row] for row in result.rows], finder.labels
    shown = None if labels is None else [labels[row] for row in result.rows]
    with newly_registered() as new:
        where = None if data is None else as_data(data).path
    found = SimilarSamples(names, result.similarities, shown, result.rows, finder, result, where)
    for spec in new:  # kept as long as the pictures may be asked for
        weakref.finalize(found, release, spec)
    if out is not None:
        found.write_sheet(out)
    return found


def _file(embeddings: str | Path | Embedded | Embeddings) -> Embeddings:
    if isinstance(embeddings, Embeddings):
        return embeddings
    return sample_embeddings(embeddings.path if isinstance(embeddings, Embedded) else embeddings)
