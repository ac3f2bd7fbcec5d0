"""What is wrong with a data set before a run: broken files, duplicates, tiny and even pictures, leaks, balance."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.data.columns import group_column
from nearfar.data.groups import merged
from nearfar.data.sources import Source
from nearfar.doctor.scan import Looked, PixelVectors, look
from nearfar.search.duplicates import find_duplicates
from nearfar.search.index import Kind, lookup
from nearfar.search.progress import bar

TINY = 24  # pixels of the short side, below which a picture is called tiny
LONG = 3.0  # times as long as wide, from which the middle square leaves much out


@dataclass(frozen=True)
class Problem:
    """One picture and what is wrong with it."""

    path: str
    kind: str  # broken, tiny, even, long, label conflict
    detail: str


@dataclass(frozen=True)
class Leak:
    """A test picture that training would see."""

    test: str
    train: str
    exact: bool


@dataclass(frozen=True)
class Findings:
    """Everything the doctor saw.

    Attributes:
        names: of the K pictures that can be read.
        groups: (K,) equal where pictures are duplicates, exact or near.
        exact_groups, near_groups: how many groups of two or more are of equal files alone, and how many are not.
        repeated: pictures that are one more copy of another.
        threshold: cosine of small pictures from which they are near-duplicates.
        classes: how many pictures each class has; empty without labels.
    """

    samples: int
    names: list[str]
    groups: Tensor
    exact_groups: int
    near_groups: int
    repeated: int
    threshold: float
    classes: dict[str, int]
    problems: list[Problem]
    leaks: list[Leak]
    tested: int | None


def examine(
    train: Source, test: Source | None = None, *, tiny: int = TINY, index: Kind = "exact", progress: bool = True
) -> Findings:
    """Look at every picture once, and compare all with all.

    Args:
        train: the data to examine.
        test: data that must not be in it.
        tiny: pixels of the short side.
        index: how near-duplicates are found, as in `lookup`.
        progress: show bars.
    """
    looked = look(train, words="looking", progress=progress)
    other = None if test is None else look(test, words="looking at the test data", progress=progress)
    if not looked.seen:
        first = f"; the first, {looked.broken[0].path}: {looked.broken[0].reason}" if looked.broken else ""
        raise ValueError(f"none of the {len(train)} images of {train.description} can be read{first}")
    everything = looked.seen + ([] if other is None else other.seen)
    exact = group_column([one.digest.hex() for one in everything])
    with bar(progress, "comparing", len(everything)) as advance:
        vectors = PixelVectors(everything)
        near = find_duplicates(vectors, find=lookup(vectors, index) if len(vectors) > 1 else None, advance=advance)
    even = torch.tensor([one.even for one in everything])
    alike = near.groups.clone()
    alike[even] = len(everything) + torch.arange(int(even.sum()))  # an even picture is like no other, or like all
    together = merged(exact, alike)
    own = len(looked.seen)
    groups = together[:own]
    equal, close = _count_groups(exact[:own], groups)
    _, sizes = groups.unique(return_counts=True)
    return Findings(
        samples=len(train),
        names=looked.names(),
        groups=groups,
        exact_groups=equal,
        near_groups=close,
        repeated=int((sizes - 1).sum()),
        threshold=near.threshold,
        classes=dict(Counter(label for label in looked.labels() if label is not None).most_common()),
        problems=[*_problems(looked, tiny), *_conflicts(looked, groups)],
        leaks=[] if other is None else _leaks(looked, other, exact, together),
        tested=None if other is None else len(other.seen),
    )


def _count_groups(exact: Tensor, groups: Tensor) -> tuple[int, int]:
    """Groups of two or more whose files are all equal, and the others."""
    digests: dict[int, list[int]] = {}
    for group, digest in zip(groups.tolist(), exact.tolist(), strict=True):
        digests.setdefault(group, []).append(digest)
    shared = [found for found in digests.values() if len(found) > 1]
    equal = sum(len(set(found)) == 1 for found in shared)
    return equal, len(shared) - equal


def _problems(looked: Looked, tiny: int) -> list[Problem]:
    found = [Problem(skipped.path, "broken", skipped.reason) for skipped in looked.broken]
    for name, one in zip(looked.names(), looked.seen, strict=True):
        size = f"{one.width}×{one.height}"
        short, long = sorted((one.width, one.height))
        if short < tiny:
            found.append(Problem(name, "tiny", size))
        if one.even:
            found.append(Problem(name, "even", f"one colour all over: {one.small[0, 0].tolist()}"))
        if long >= LONG * short:
            found.append(Problem(name, "long", f"{size}: the middle square leaves much out"))
    return found


def _conflicts(looked: Looked, groups: Tensor) -> list[Problem]:
    """Duplicates that have different labels."""
    labels, names = looked.labels(), looked.names()
    stated: dict[int, set[str]] = {}
    for group, label in zip(groups.tolist(), labels, strict=True):
        if label is not None:
            stated.setdefault(group, set()).add(label)
    return [
        Problem(name, "label conflict", f"duplicates of it are {', '.join(sorted(stated[group] - {label}))}")
        for name, group, label in zip(names, groups.tolist(), labels, strict=True)
        if label is not None and len(stated[group]) > 1
    ]


def _leaks(train: Looked, test: Looked, exact: Tensor, together: Tensor) -> list[Leak]:
    """Each test picture that has an equal or a near-duplicate in the training data."""
    own, names = len(train.seen), train.names()
    equal, near = _first_of(exact[:own]), _first_of(together[:own])
    leaks = []
    for place, name in enumerate(test.names(), own):
        by_bytes, by_looks = equal.get(int(exact[place])), near.get(int(together[place]))
        if by_bytes is not None:
            leaks.append(Leak(name, names[by_bytes], True))
        elif by_looks is not None:
            leaks.append(Leak(name, names[by_looks], False))
    return leaks


def _first_of(groups: Tensor) -> dict[int, int]:
    found: dict[int, int] = {}
    for row, group in enumerate(groups.tolist()):
        found.setdefault(group, row)
    return found
