"""Hard negatives for pairs of texts: what an encoder finds near an anchor, but not as near as its positive."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.losses.arguments import l2_normalize
from nearfar.losses.engine.similarity import paired_similarity
from nearfar.model.encoder import Encoder
from nearfar.nn.seeding import seeded_generator
from nearfar.search.index import Kind, lookup
from nearfar.search.search import QUERIES, InMemory

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_TRIES = 10  # candidates for each negative, where some may be left out


@dataclass(frozen=True)
class Mining:
    """Which texts near an anchor are negatives; named as in sentence-transformers' `mine_hard_negatives`.

    Attributes:
        negatives: of each pair.
        range_min, range_max: ranks of candidates, the nearest first, own positives not counted; None: 10 for each
            negative.
        max_score, min_score: cosines of anchor and negative.
        margin, relative_margin: how much less similar than the positive a negative must be, as a cosine and as a part
            of the positive's. Of several positives of an anchor, the least similar counts.
        sampling: the nearest of the candidates, or drawn from them.
        seed: of the draw.
    """

    negatives: int = 3
    range_min: int = 0
    range_max: int | None = None
    max_score: float | None = None
    min_score: float | None = None
    margin: float = 0.0
    relative_margin: float = 0.05
    sampling: Literal["top", "random"] = "top"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("negatives", self.negatives, 1),
            ("range_min", self.range_min, 0),
            ("margin", self.margin, 0),
            ("relative_margin", self.relative_margin, 0),
            ("range_max", self.most, self.range_min + self.negatives),
        ):
            if value < least:
                raise ValueError(f"{name} is {value}, expected at least {least}")

    @property
    def most(self) -> int:
        """Candidates that are looked at."""
        return self.range_min + _TRIES * self.negatives if self.range_max is None else self.range_max


@torch.no_grad()
def mine_negatives(
    encoder: Encoder,
    anchors: Sequence[str],
    positives: Sequence[str],
    settings: Mining | None = None,
    *,
    corpus: Sequence[str] = (),
    index: Kind = "exact",
    progress: bool = False,
) -> list[list[str]]:
    """The negatives of each pair, the hardest first; none of a pair for which too few are found.

    Candidates are the positives of all pairs and the corpus, each text once. An anchor's own words and all positives of
    equal anchors are none of its negatives.

    Args:
        encoder: that reads texts.
        anchors, positives: N texts each.
        corpus: further texts.
        index: how the nearest are found, as in `lookup`.
    """
    settings = settings or Mining()
    texts = list(dict.fromkeys([*positives, *corpus]))
    number = {text: place for place, text in enumerate(texts)}
    asked = list(dict.fromkeys(anchors))
    own = {anchor: {number[anchor]} if anchor in number else set() for anchor in asked}
    for anchor, positive in zip(anchors, positives, strict=True):
        own[anchor].add(number[positive])
    keys = l2_normalize(encoder.encode(texts, kind="text", progress=progress))  # (M, F)
    queries = l2_normalize(encoder.encode(asked, kind="text", progress=progress))  # (Q, F)
    limits = _limits(queries, keys, asked, anchors, [number[text] for text in positives], settings)
    find, found = lookup(InMemory(keys), index), {}
    most = min(len(texts), settings.most + max(map(len, own.values())))
    for first in range(0, len(asked), QUERIES):
        hits = find(queries[first : first + QUERIES], most)
        for place, (scores, rows) in enumerate(zip(hits.similarities.tolist(), hits.rows.tolist(), strict=True), first):
            anchor, limit = asked[place], float(limits[place])
            ranked = [(s, row) for s, row in zip(scores, rows, strict=True) if row >= 0 and row not in own[anchor]]
            kept = [row for s, row in ranked[settings.range_min : settings.most] if _fits(s, limit, settings)]
            found[anchor] = [texts[row] for row in _chosen(kept, place, settings)]
    return [found[anchor] for anchor in anchors]


def _limits(
    queries: Tensor, keys: Tensor, asked: list[str], anchors: Sequence[str], positives: list[int], settings: Mining
) -> Tensor:
    """(Q,) the largest cosine of a negative of each anchor: that of its least similar positive, less the margins."""
    number = {anchor: place for place, anchor in enumerate(asked)}
    owner = torch.tensor([number[anchor] for anchor in anchors])  # (N,)
    similarity = paired_similarity(queries[owner], keys[positives])  # (N,)
    least = torch.full((len(asked),), torch.inf).scatter_reduce_(0, owner, similarity, "amin")
    return least - settings.margin - settings.relative_margin * least.abs()


def _fits(score: float, limit: float, settings: Mining) -> bool:
    highest = limit if settings.max_score is None else min(limit, settings.max_score)
    return score <= highest and (settings.min_score is None or score >= settings.min_score)


def _chosen(rows: list[int], place: int, settings: Mining) -> list[int]:
    """So many of the rows; none if there are fewer."""
    if len(rows) < settings.negatives:
        return []
    if settings.sampling == "top":
        return rows[: settings.negatives]
    drawn = torch.randperm(len(rows), generator=seeded_generator(settings.seed, place, 0))[: settings.negatives]
    return [rows[i] for i in sorted(drawn.tolist())]


def check_output(path: Path) -> None:
    """Refuse a table of another kind than those that are written."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"the output is {str(path)!r}, expected a name that ends in {', '.join(SUFFIXES)}")


def write_negatives(
    path: Path, anchors: Sequence[str], positives: Sequence[str], negatives: Sequence[Sequence[str]]
) -> int:
    """Write a table of anchor, positive, negative, negative_2, …, as `--method pairs` reads it; returns its rows.

    Pairs without negatives are left out.
    """
    check_output(path)
    rows = [(a, p, *n) for a, p, n in zip(anchors, positives, negatives, strict=True) if n]
    if not rows:
        raise ValueError("no pair has enough negatives: raise --range-max, or lower --negatives or the margins")
    names = ["anchor", "positive", *(f"negative_{i}" if i > 1 else "negative" for i in range(1, len(rows[0]) - 1))]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh:
        if path.suffix.lower() == ".parquet":
            import pyarrow
            from pyarrow import parquet

            columns = list(zip(*rows, strict=True))
            parquet.write_table(pyarrow.table({n: list(c) for n, c in zip(names, columns, strict=True)}), fresh)
        else:
            with fresh.open("w", encoding="utf-8", newline="") as file:
                if path.suffix.lower() == ".jsonl":
                    records = (dict(zip(names, row, strict=True)) for row in rows)
                    file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
                else:
                    writer = csv.writer(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
                    writer.writerows([names, *rows])
    return len(rows)
