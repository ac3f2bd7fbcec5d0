"""`nearfar.select`: which samples to label next, as a table and a contact sheet."""

import csv
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

import torch
from torch import Tensor

from nearfar.data.cache import write_file
from nearfar.data.columns import label_column
from nearfar.data.dataset import counted
from nearfar.evaluation.linear import linear_probe
from nearfar.losses.arguments import l2_normalize
from nearfar.messages import nearest_or_all
from nearfar.model.encoder import Encoder
from nearfar.notebook import Printed
from nearfar.progress import progress_bar
from nearfar.search.embed import ReadOptions, embed
from nearfar.search.files import SUFFIXES, Embeddings, sample_embeddings
from nearfar.search.location import Location
from nearfar.selection.labelled import Labelled, read_labelled
from nearfar.selection.pool import Pick, Pool, duplicate_threshold
from nearfar.selection.strategies import STRATEGIES, cluster, uncertain

Strategy = Literal["facility", "k-center", "typical", "uncertain", "random"]
Balance = Literal["clusters", "classes"]
SHOWN = 10  # lines
GROUPS = 50  # clusters that are balanced, at most


@dataclass(frozen=True)
class Selection(Printed):
    """What to label next.

    Attributes:
        names: of the selected samples, the most useful first.
        rows: their numbers among the embeddings.
        reasons: why each was selected.
        samples: how many there are in all.
        labelled: how many of them are labelled already.
        left_out: near-duplicates of selected or labelled samples that would have been selected.
        location: of the data that the embeddings are from.
        path: of the table, if one was written.
    """

    names: list[str]
    rows: list[int]
    reasons: list[str]
    samples: int
    labelled: int
    left_out: int
    location: Location
    path: Path | None = None

    def shown(self) -> str:
        lines = [
            f"{rank:>4}  {name}  {why}"
            for rank, (name, why) in enumerate(zip(self.names, self.reasons, strict=True), 1)
        ]
        if len(lines) > SHOWN:
            lines = [*lines[:SHOWN], f"      and {len(lines) - SHOWN:,} more"]
        end = f"{len(self.names):,} of {self.samples:,} samples selected"
        if self.labelled:
            end += f", beside {self.labelled:,} that are labelled"
        if self.left_out:
            end += f"; {counted(self.left_out, 'near-duplicate')} left out"
        return "\n".join([*lines, end + ("" if self.path is None else f": {self.path}")])

    def table(self) -> str:
        """CSV of path, rank and reason."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(["path", "rank", "reason"])
        writer.writerows(zip(self.names, range(1, len(self.names) + 1), self.reasons, strict=True))
        return text.getvalue()


def select(
    data: Any,
    n: int,
    *,
    encoder: str | Path | Encoder | None = None,
    strategy: Strategy = "facility",
    labelled: str | Path | None = None,
    balance: Balance | None = None,
    duplicates: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = True,
    **reading: Unpack[ReadOptions],
) -> Selection:
    """The n samples whose labels would teach the most, as `nearfar select` finds them.

    Args:
        data: a file of embeddings that `nearfar.embed` wrote, (N, D) embeddings, or with `encoder` the data themselves.
        n: samples to select; fewer where there are fewer.
        encoder: as `nearfar.load` takes it; None: `data` are embeddings.
        strategy: "facility" and "k-center" select diverse samples, "typical" one of each cluster, "uncertain" those
            between two classes (it needs labels), "random" any.
        labelled: a file of the samples that have a label: a table with the columns path and label, or a list of paths.
            They count as covered, and are not selected.
        balance: as many of each cluster, or of each class that the data state, as there are enough.
        duplicates: select near-duplicates too.
        seed: of everything that is drawn; the same seed selects the same samples.
        out: where to write the table of path, rank and reason; None: nowhere.
        progress: show bars.
        reading: split, labels and size, as in `Encoder.open`.
    """
    _check(n, strategy, labelled, balance)
    vectors, names, classes, location = _embeddings(data, encoder, progress, reading)
    known = Labelled(torch.zeros(0, dtype=torch.long), []) if labelled is None else read_labelled(labelled, names)
    pool = Pool(
        vectors,
        known.rows,
        seed,
        n,
        threshold=None if duplicates else duplicate_threshold(vectors, seed),
        groups=_groups(vectors, classes, balance, seed),
    )
    with torch.no_grad(), progress_bar(progress and "selecting", n) as advance:
        if strategy == "uncertain":
            uncertain(pool, *_probabilities(vectors, known, classes, seed), advance)
        else:
            STRATEGIES[strategy](pool, advance)
    return _result(pool, names, location, out)


def _result(pool: Pool, names: list[str], location: Location, out: str | Path | None) -> Selection:
    picks: list[Pick] = pool.picks
    path = None if out is None else Path(out).expanduser()
    found = Selection(
        [names[pick.row] for pick in picks],
        [pick.row for pick in picks],
        [pick.reason for pick in picks],
        len(names),
        len(pool.labelled),
        pool.left_out,
        location,
        path,
    )
    if path is not None:
        write_file(path, found.table())
    return found


def _check(n: int, strategy: str, labelled: str | Path | None, balance: str | None) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"n is {n!r}, expected a whole number of samples, at least 1")
    if strategy not in get_args(Strategy):
        raise ValueError(f"strategy is {strategy!r}{nearest_or_all(str(strategy), get_args(Strategy))}")
    if balance is not None and balance not in get_args(Balance):
        raise ValueError(f"balance is {balance!r}{nearest_or_all(str(balance), get_args(Balance))}")
    if strategy == "uncertain" and labelled is None:
        raise ValueError("the strategy 'uncertain' needs labels; give --labelled FILE, or use 'facility'")


_Read = tuple[Tensor, list[str], list[str | None] | None, Location]  # (N, D) unit rows, names, labels


def _embeddings(data: Any, encoder: str | Path | Encoder | None, progress: bool, reading: ReadOptions) -> _Read:
    if encoder is not None:
        with tempfile.TemporaryDirectory() as folder:
            done = embed(encoder, data, Path(folder) / "all.parquet", progress=progress, **reading)
            return _of_file(Embeddings(done.path))
    if isinstance(data, Embeddings):
        return _of_file(data)
    if isinstance(data, str | Path):
        if Path(data).suffix.lower() not in SUFFIXES:
            raise ValueError(f"{data} is not a file of embeddings; give --encoder RUN, or package:efficientnet-lite0")
        return _of_file(sample_embeddings(data))
    x = torch.as_tensor(data)
    if x.ndim != 2 or not x.is_floating_point():
        raise ValueError(f"data is {x.dtype} of shape {tuple(x.shape)}, expected (N, D) embeddings; or give encoder")
    if len(x) == 0 or not bool(x.isfinite().all()):
        raise ValueError(f"data of shape {tuple(x.shape)} has no rows or some that are not finite")
    return l2_normalize(x.detach().cpu().float()), [str(i) for i in range(len(x))], None, Location(None)


def _of_file(file: Embeddings) -> _Read:
    x = torch.empty(len(file), file.dim)
    for start, part in file.pieces():
        x[start : start + len(part)] = l2_normalize(part)
    labels = file.labels()
    return x, list(file.names()), None if labels is None else list(labels), file.location()


def _groups(x: Tensor, classes: list[str | None] | None, balance: Balance | None, seed: int) -> Tensor | None:
    if balance is None:
        return None
    if balance == "clusters":
        return cluster(x, min(GROUPS, max(1, len(x) // 20)), seed)
    if classes is None:
        raise ValueError("the data have no classes to balance; use balance 'clusters', or embed them with --labels")
    found, _ = label_column(classes)
    return found - found.min()


def _probabilities(x: Tensor, known: Labelled, classes: list[str | None] | None, seed: int) -> tuple[Tensor, list[str]]:
    """(N, C) of a linear probe on the labelled rows, and the names of the classes."""
    stated = [
        label if label is not None else (classes[row] if classes is not None else None)
        for row, label in zip(known.rows.tolist(), known.labels, strict=True)
    ]
    has = torch.tensor([label is not None for label in stated], dtype=torch.bool)
    labels, names = label_column([f" {label}" for label in stated if label is not None])
    if len(names) < 2:
        raise ValueError(
            f"the labelled samples have {counted(len(names), 'class')}, expected a column label with two or more"
        )
    probe = linear_probe(x[known.rows[has]], labels, classes=len(names), seed=seed)
    return torch.cat([probe(part).softmax(1) for part in x.split(4096)]), [name[1:] for name in names]
