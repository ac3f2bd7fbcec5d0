"""Labels that an encoder doubts and samples unlike all others, with names, as tables and contact sheets."""

import csv
import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch

from nearfar.data.cache import write_file
from nearfar.data.columns import label_column
from nearfar.evaluation.label_errors import find_label_errors, find_outliers
from nearfar.messages import one_line
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.notebook import Printed
from nearfar.progress import progress_bar
from nearfar.search.contact_sheet import CELL, picture_sheet
from nearfar.search.embed import ReadOptions, embed
from nearfar.search.files import Embeddings
from nearfar.search.location import Location
from nearfar.search.thumbnails import thumbnails

PICTURES = 98  # of a sheet, at most
SHOWN = 5  # lines
TABLES = ("label-errors", "outliers")


@dataclass(frozen=True)
class DoubtedLabel:
    """A sample whose label is probably wrong."""

    path: str
    label: str
    suggested: str
    margin: float  # log of how many times more probable the suggested class is


@dataclass(frozen=True)
class Outlier:
    """A sample unlike all others."""

    path: str
    similarity: float  # mean cosine with the 10 nearest others


@dataclass(frozen=True)
class Audit(Printed):
    """What an encoder says of the labels and samples of a data set; both lists have the worst first.

    Attributes:
        labels: the doubted ones; None where the data have no labels.
        outliers: samples unlike all others.
        samples, judged: how many there are, and how many labels could be judged.
        location: of the data.
    """

    labels: list[DoubtedLabel] | None
    outliers: list[Outlier]
    samples: int
    judged: int
    location: Location

    def shown(self) -> str:
        lines = []
        if self.labels is not None:
            lines.append(f"{len(self.labels):,} of {self.judged:,} labels are probably wrong.")
            lines += [f"  {each.path}: {each.label}, probably {each.suggested}" for each in self.labels[:SHOWN]]
        lines.append(f"{len(self.outliers):,} of {self.samples:,} samples are unlike all others.")
        lines += [f"  {each.path}" for each in self.outliers[:SHOWN]]
        return "\n".join(lines)


def audit(
    encoder: str | Path | Encoder, data: Any, *, seed: int = 0, progress: bool = True, **reading: Unpack[ReadOptions]
) -> Audit:
    """Embed the data, and compare each sample with the others.

    Args:
        encoder: an encoder, or its name as `nearfar.load` takes it.
        data: as `nearfar.embed` takes it, or a file that it wrote (`Embeddings`).
        seed: of the folds of the cross-validation.
        progress: show bars.
        reading: split, labels, size, path_column, label_column and root, as in `Encoder.open`.
    """
    if isinstance(data, Embeddings):
        return _audit_file(data, seed, progress)
    with tempfile.TemporaryDirectory() as folder:
        encoder = encoder if isinstance(encoder, Encoder) else load(encoder)
        done = embed(encoder, data, Path(folder) / "all.parquet", progress=progress, **reading)
        return _audit_file(Embeddings(done.path), seed, progress)


def audit_training_part(encoder: Encoder, data: str, *, labels: bool | None = None) -> Audit:
    """The audit of data to evaluate on: of their part train where a folder has one; sub-folders are labels.

    Args:
        encoder: judges them.
        data: as `Encoder.open` takes it.
        labels: whether sub-folders are labels; None: they are.
    """
    folder = Path(data).expanduser()
    split = "train" if (folder / "train").is_dir() else None
    return audit(encoder, data, split=split, labels=True if labels is None and folder.is_dir() else labels)


def _audit_file(file: Embeddings, seed: int, progress: bool) -> Audit:
    x = torch.cat([part for _, part in file.pieces()])
    names, stated = file.names(), file.labels()
    outliers = [Outlier(names[row], s) for row, s in zip(*map(torch.Tensor.tolist, find_outliers(x)), strict=True)]
    if stated is None:
        return Audit(None, outliers, len(x), 0, file.location())
    labels, classes = label_column([None if label is None else f" {label}" for label in stated])
    with progress_bar(progress and "judging labels", 2) as advance:
        found = find_label_errors(x, labels, seed=seed, advance=advance)
    doubted = [
        DoubtedLabel(names[row], classes[labels[row]][1:], classes[better][1:], margin)
        for row, better, margin in zip(
            found.rows.tolist(), found.suggested.tolist(), found.margins.tolist(), strict=True
        )
    ]
    return Audit(doubted, outliers, len(x), found.judged, file.location())


def write_audit(found: Audit, encoder: Encoder, folder: Path, *, data: str | None = None) -> dict[str, Path | str]:
    """Write a table and a contact sheet of the doubted labels and of the outliers; their paths, or why there is none.

    Args:
        found: the audit.
        encoder: whose modality draws the samples.
        folder: where to write.
        data: where the samples are, if not where the embeddings say.
    """
    for name in TABLES:
        for suffix in (".csv", ".png"):
            (folder / f"{name}{suffix}").unlink(missing_ok=True)
    written: dict[str, Path | str] = {}
    doubted = found.labels or []
    if doubted:
        rows = [(d.path, d.label, d.suggested, f"{d.margin:.4f}") for d in doubted]
        written["label errors"] = _write_table(folder / "label-errors.csv", "path,label,suggested,margin", rows)
        captions = [(f"{d.label} → {d.suggested}?", d.path) for d in doubted[:PICTURES]]
        written["pictures of label errors"] = _sheet(found, encoder, captions, folder / "label-errors.png", data)
    if found.outliers:
        lines = [(o.path, f"{o.similarity:.4f}") for o in found.outliers]
        written["outliers"] = _write_table(folder / "outliers.csv", "path,similarity", lines)
        captions = [(f"cosine {o.similarity:.3f}", o.path) for o in found.outliers[:PICTURES]]
        written["pictures of outliers"] = _sheet(found, encoder, captions, folder / "outliers.png", data)
    return written


def _write_table(path: Path, header: str, rows: Sequence[tuple[str, ...]]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header.split(","), *rows])
    return write_file(path, text.getvalue())


def _sheet(found: Audit, encoder: Encoder, captions: list[tuple[str, str]], out: Path, data: str | None) -> Path | str:
    if not encoder.modality.has_pictures:
        return f"none: {encoder.modality.noun} have no pictures"
    names = [name for _, name in captions]
    try:
        pictures, _ = thumbnails(encoder.modality, names, found.location.by(data), size=CELL)
    except (ValueError, OSError) as error:
        return f"none: {one_line(error)}"
    return picture_sheet(pictures, captions, out)
