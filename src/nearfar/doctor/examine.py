"""Problems of a data set before a run: broken files, duplicates, tiny or plain images, leaks, class balance."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.data.columns import group_column
from nearfar.data.groups import connected, merged
from nearfar.doctor.scan import PixelVectors, Scan, ScannedImage, differing_bits, scan
from nearfar.modalities.image.data.source import ImageSource
from nearfar.progress import progress_bar
from nearfar.search.duplicates import NEIGHBORS
from nearfar.search.index import Kind, lookup
from nearfar.search.search import Lookup, neighbors

TINY = 24  # pixels of the short side, below which an image is tiny
COPY_COSINE = 0.95  # of the small copies: a watermark is at 0.955, the 1 % of watermarks that differ most
COPY_BITS = 40  # of 256: re-encoded, resized and watermarked images differ in up to 34, no two others in fewer than 58
SURE_COSINE = 0.99  # no two others of 1,500 product photos reach 0.975
LONG = 3.0  # ratio of the sides from which the center square leaves out much of the image


@dataclass(frozen=True)
class ImageProblem:
    """One image and what is wrong with it."""

    path: str
    kind: str  # "broken", "several pages", "tiny", "one colour", "long" or "label conflict"
    detail: str


@dataclass(frozen=True)
class Leak:
    """A test image that is also in the training data."""

    test: str
    train: str
    exact: bool


@dataclass(frozen=True)
class Diagnosis:
    """Everything that was found.

    Attributes:
        samples: images in all.
        names: of the K readable images.
        groups: (K,) equal for exact and near duplicates.
        exact_groups, near_groups: groups of two or more: of equal files only, and the others.
        repeated: images that are a further copy of another.
        threshold: cosine of downscaled images from which hashes decide whether they are near-duplicates.
        classes: number of images by class; empty without labels.
        tested: readable test images; None without test data.
    """

    samples: int
    names: list[str]
    groups: Tensor
    exact_groups: int
    near_groups: int
    repeated: int
    threshold: float
    classes: dict[str, int]
    problems: list[ImageProblem]
    leaks: list[Leak]
    tested: int | None


def examine(
    train: ImageSource,
    test: ImageSource | None = None,
    *,
    tiny: int = TINY,
    index: Kind = "exact",
    progress: bool = True,
) -> Diagnosis:
    """Read every image once, and compare all with each other.

    Args:
        train: the data to examine.
        test: data that must not be in it.
        tiny: pixels of the short side.
        index: how near-duplicates are found, as in `lookup`.
        progress: show progress bars.
    """
    own = scan(train, label=progress and "reading")
    other = None if test is None else scan(test, label=progress and "reading the test data")
    if not own.images:
        first = f"; the first, {own.broken[0].path}: {own.broken[0].reason}" if own.broken else ""
        raise ValueError(f"none of the {len(train)} images of {train.description} can be read{first}")
    images = own.images + ([] if other is None else other.images)
    exact = group_column([image.digest.hex() for image in images])
    with progress_bar(progress and "comparing", len(images)) as advance:
        vectors = PixelVectors(images)
        similar = copies(vectors, images, lookup(vectors, index) if len(vectors) > 1 else None, advance)
    either = merged(exact, similar)
    groups = either[: len(own.images)]
    exact_groups, near_groups = _count_groups(exact[: len(groups)], groups)
    return Diagnosis(
        samples=len(train) + sum(each.samples or 0 for each in train.skipped),
        names=own.names(),
        groups=groups,
        exact_groups=exact_groups,
        near_groups=near_groups,
        repeated=len(groups) - len(groups.unique()),
        threshold=COPY_COSINE,
        classes=dict(Counter(label for label in own.labels() if label is not None).most_common()),
        problems=[*_image_problems(own, tiny), *_label_conflicts(own, groups)],
        leaks=[] if other is None else _leaks(own, other, exact, either),
        tested=None if other is None else len(other.images),
    )


def copies(
    vectors: PixelVectors, images: Sequence[ScannedImage], find: Lookup | None, advance: Callable[[int], None]
) -> Tensor:
    """(N,) equal for images that a chain of copies connects; plain images have none.

    Two images are copies if they are among each other's nearest by pixels, at a cosine of `COPY_COSINE`, and their
    hashes differ in at most `COPY_BITS` bits; from `SURE_COSINE` on whatever the hash, which is noise where an image
    has no detail. None of it depends on how many images there are.
    """
    if len(images) < 2:
        return torch.arange(len(images))
    hits = neighbors(vectors, k=min(NEIGHBORS, len(images) - 1), find=find, advance=advance)
    rows, places = ((hits.similarities >= COPY_COSINE) & (hits.rows >= 0)).nonzero(as_tuple=True)
    pairs = zip(rows.tolist(), hits.rows[rows, places].tolist(), hits.similarities[rows, places].tolist(), strict=True)
    found = ((a, b) for a, b, cosine in pairs if _is_copy(images[a], images[b], cosine))
    return group_column(connected(len(images), found))


def _is_copy(a: ScannedImage, b: ScannedImage, cosine: float) -> bool:
    alike = cosine >= SURE_COSINE or differing_bits(a.hash, b.hash) <= COPY_BITS
    return alike and not a.plain and not b.plain


def _count_groups(exact: Tensor, groups: Tensor) -> tuple[int, int]:
    """Groups of two or more: of equal files only, and the others."""
    digests: dict[int, list[int]] = {}
    for group, digest in zip(groups.tolist(), exact.tolist(), strict=True):
        digests.setdefault(group, []).append(digest)
    shared = [found for found in digests.values() if len(found) > 1]
    equal = sum(len(set(found)) == 1 for found in shared)
    return equal, len(shared) - equal


def _image_problems(found: Scan, tiny: int) -> list[ImageProblem]:
    problems = [ImageProblem(skipped.path, "broken", skipped.reason) for skipped in found.broken]
    for name, image in zip(found.names(), found.images, strict=True):
        size = f"{image.width}×{image.height}"
        if image.pages > 1:
            problems.append(ImageProblem(name, "several pages", f"{image.pages} pages or frames: the first is read"))
        short, long = sorted((image.width, image.height))
        if short < tiny:
            problems.append(ImageProblem(name, "tiny", size))
        if image.plain:
            problems.append(ImageProblem(name, "one colour", f"{image.small[0, 0].tolist()} everywhere"))
        if long >= LONG * short:
            problems.append(ImageProblem(name, "long", f"{size}: the center square leaves out much of it"))
    return problems


def _label_conflicts(found: Scan, groups: Tensor) -> list[ImageProblem]:
    """Duplicates with different labels."""
    labels, names = found.labels(), found.names()
    by_group: dict[int, set[str]] = {}
    for group, label in zip(groups.tolist(), labels, strict=True):
        if label is not None:
            by_group.setdefault(group, set()).add(label)
    return [
        ImageProblem(name, "label conflict", f"its duplicates are {', '.join(sorted(by_group[group] - {label}))}")
        for name, group, label in zip(names, groups.tolist(), labels, strict=True)
        if label is not None and len(by_group[group]) > 1
    ]


def _leaks(train: Scan, test: Scan, exact: Tensor, either: Tensor) -> list[Leak]:
    """Test images with an equal file or a near-duplicate in the training data."""
    names = train.names()
    equal, near = (_first_rows(groups[: len(names)]) for groups in (exact, either))
    leaks = []
    for place, name in enumerate(test.names(), len(names)):
        same, similar = equal.get(int(exact[place])), near.get(int(either[place]))
        row = similar if same is None else same
        if row is not None:
            leaks.append(Leak(name, names[row], same is not None))
    return leaks


def _first_rows(groups: Tensor) -> dict[int, int]:
    """The first row of each group."""
    return {group: row for row, group in reversed(list(enumerate(groups.tolist())))}
