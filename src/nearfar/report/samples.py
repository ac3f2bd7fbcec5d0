"""A bounded sample of the data as an encoder sees it: its map, who is near whom, and what to look at in a report."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.evaluation.clustering import k_means
from nearfar.evaluation.embedding import Encoder, Prepare, embed
from nearfar.evaluation.results import write_atomically
from nearfar.losses.arguments import unit
from nearfar.report.thumbnail_sheet import make_sheet, sheet_side

SAMPLES = "report/samples.npz"  # in the folder of a run
MOST = 2000  # samples that are looked at
SIDE = 48  # pixels of a thumbnail, at most
_NEIGHBOURS = 8
_QUERIES = 6  # of which the neighbours are shown, at random, and as many of the worst
_PAIRS = 12  # shown of each kind
_COMPONENTS = 32  # kept, of which two are the map
_CLUSTERS = 10  # where no labels say how many
_LONGEST = 300  # characters of a name or text

Pictures = Callable[[Tensor, int], NDArray[np.uint8] | None]  # (B, ...) fetched samples to (B, S, S, 3), S at most that


@dataclass(frozen=True)
class Samples:
    """N samples; numbers in `nearest`, `random`, `worst`, `hard` and `suspected` are places among them."""

    data: NDArray[np.str_]  # (3,) name of the data, of their split, and of how many samples these are some
    names: NDArray[np.str_]  # (N,) where each comes from
    texts: NDArray[np.str_]  # (N,) what it says, or what is said of it
    labels: NDArray[np.int64]  # (N,) -1 where there is none
    classes: NDArray[np.str_]  # (C,) names of the labels
    clusters: NDArray[np.int64]  # (N,) by k-means of the unit embeddings
    components: NDArray[np.float32]  # (N, P) principal components of the unit embeddings
    variance: NDArray[np.float32]  # (P,) the share of each
    nearest: NDArray[np.int64]  # (N, K) in falling order of similarity
    similarity: NDArray[np.float32]  # (N, K) cosines
    random: NDArray[np.int64]  # (Q,)
    worst: NDArray[np.int64]  # (Q,)
    hard: NDArray[np.int64]  # (M, 2) negatives with the highest similarity; of images and texts: image, text
    hard_similarity: NDArray[np.float32]  # (M,)
    suspected: NDArray[np.int64]  # (M, 2) negatives that may be none
    suspected_similarity: NDArray[np.float32]  # (M,)
    counts: NDArray[np.int64]  # (3,) pairs of other ids; those no less alike than the middle positive; of one label
    positive: NDArray[np.float32]  # () median similarity of two views of one sample; nan where it is not known
    crossed: NDArray[np.bool_]  # () whether pairs are of an image and a text
    sheet: NDArray[np.uint8]  # bytes of a WebP or JPEG with all thumbnails side by side, empty where there are none
    umap: NDArray[np.float32]  # (N, 2), or (0, 2) where it was not made

    def __len__(self) -> int:
        return len(self.names)

    def save(self, folder: Path | str) -> Path:
        """Write `report/samples.npz` into the folder of a run."""
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **vars(self))
        return write_atomically(Path(folder) / SAMPLES, content.getvalue())

    @classmethod
    def load(cls, path: Path | str) -> "Samples":
        """Read what `save` wrote; whatever does not fit together is an error."""
        with np.load(path, allow_pickle=False) as content:
            found = cls(**{name: content[name] for name in cls.__dataclass_fields__})
        found.check()
        return found

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        n, k, p = len(self.names), self.nearest.shape[-1], self.components.shape[-1]
        shapes = {"data": (3,), "texts": (n,), "labels": (n,), "clusters": (n,), "components": (n, p)}
        shapes |= {"nearest": (n, k), "similarity": (n, k), "variance": (p,), "counts": (3,)}
        shapes |= {"hard": (len(self.hard_similarity), 2), "suspected": (len(self.suspected_similarity), 2)}
        shapes |= {"umap": (len(self.umap), 2)}
        wrong = [name for name, shape in shapes.items() if getattr(self, name).shape != shape]
        places = (self.nearest, self.random, self.worst, self.hard, self.suspected)
        wrong += ["numbers"] if any(x.size and not 0 <= x.min() <= x.max() < n for x in places) else []
        wrong += ["labels"] if n and not -1 <= self.labels.min() <= self.labels.max() < len(self.classes) else []
        wrong += ["umap"] if len(self.umap) not in (0, n) else []
        floats = (self.components, self.similarity, self.umap, self.hard_similarity, self.suspected_similarity)
        wrong += ["values"] if not all(np.isfinite(x).all() for x in floats) else []
        if wrong or n < 2 or p < 2:
            raise ValueError(f"{', '.join(wrong) or 'samples'} do not fit together in the samples of a report")
        if self.sheet.size:
            sheet_side(self.sheet.tobytes(), n)


class Positives(NamedTuple):
    """Two embeddings of each of N samples that should be alike: (N, F) twice."""

    first: Tensor
    second: Tensor
    crossed: bool  # the second are of texts, which other samples are compared with


@torch.no_grad()
def take_samples(
    encoder: Encoder,
    dataset: Dataset,
    *,
    prepare: Prepare,
    pictures: Pictures,
    ids: Tensor | None = None,
    positives: Callable[[Tensor], Positives | None] | None = None,
    data: str,
    split: str,
    seed: int,
    most: int = MOST,
) -> Samples:
    """Look at some samples of a data set with an encoder.

    Args:
        encoder, prepare: as in `embed`.
        dataset: at least two samples.
        pictures: fetched samples to thumbnails, None where they have no picture.
        ids: (len(dataset),) samples with equal ids are no negatives; each has its own where None.
        positives: (N,) numbers of samples to two embeddings each, as training has views of them; None: not known.
        data, split: what is looked at, in words.
        seed: of the draw and of the clusters.
        most: samples.
    """
    if len(dataset) < 2:
        raise ValueError(f"{len(dataset)} samples, expected at least two to compare")
    drawn = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))[:most].sort().values  # (N,)
    h = embed(encoder, dataset, prepare=prepare, rows=drawn)
    if not bool(h.isfinite().all()):
        raise ValueError("some embeddings are not finite")
    z = unit(h)
    labels, classes = _labels(dataset, drawn)
    known = len(labels[labels >= 0].unique())
    similar = z @ z.T  # (N, N), N at most 2,000
    similar.fill_diagonal_(-torch.inf)
    nearest = similar.topk(min(_NEIGHBOURS, len(z) - 1))
    pair = positives(drawn) if positives is not None else None
    negatives = _negatives(similar, (drawn if ids is None else ids[drawn]).cpu(), labels if known > 1 else None, pair)
    components, variance = principal_components(z, _COMPONENTS)
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))
    return Samples(
        data=np.array([data, split, f"{len(dataset)}"], np.str_),
        names=_cut([str(dataset.names[row]) for row in drawn.tolist()]),
        texts=_cut(_texts(dataset, drawn.tolist())),
        labels=labels.numpy(),
        classes=_cut(classes),
        clusters=k_means(z, k=min(len(z), known if known > 1 else _CLUSTERS), seed=seed, restarts=2).numpy(),
        components=components.numpy(),
        variance=variance.numpy(),
        nearest=nearest.indices.numpy(),
        similarity=nearest.values.numpy(),
        random=order[:_QUERIES].numpy(),
        worst=_worst(nearest.values, nearest.indices, labels if known > 1 else None)[:_QUERIES].numpy(),
        sheet=np.frombuffer(_thumbnails(dataset, drawn, pictures), np.uint8),
        umap=np.empty((0, 2), np.float32),
        **negatives,
    )


def principal_components(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(N, P) coordinates along the directions of greatest variance and (P,) the share of each; P is at least two.

    Computed in float64; the sign of a direction is that which makes its largest entry positive. Where there are fewer
    than two directions, zeros stand for the others.
    """
    centred = x.double() - x.double().mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)  # rising
    kept = min(most, len(values), len(x))
    values, vectors = values.flip(0)[:kept].clamp_min(0), vectors.flip(1)[:, :kept]
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    total = centred.square().sum().clamp_min(1e-300)
    missing = max(0, 2 - kept)
    return F.pad(centred @ vectors, (0, missing)).float(), F.pad(values / total, (0, missing)).float()


def image_pictures(x: Tensor, side: int) -> NDArray[np.uint8]:
    """(B, 3, S, S) uint8 to (B, s, s, 3), s at most `side`."""
    if x.shape[-1] > side:
        x = F.interpolate(x.float(), size=(side, side), mode="area").round().to(torch.uint8)
    pixels: NDArray[np.uint8] = x.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    return pixels


def _thumbnails(dataset: Dataset, rows: Tensor, pictures: Pictures) -> bytes:
    made = []
    for part in rows.split(256):
        some = pictures(dataset.fetch(part), SIDE)
        if some is None:
            return b""
        made.append(some)
    return make_sheet(np.concatenate(made))


def _negatives(similar: Tensor, ids: Tensor, labels: Tensor | None, pair: Positives | None) -> dict[str, Any]:
    """The pairs of other ids that are most alike: with labels those of other labels, and those that may be none."""
    crossed = pair is not None and pair.crossed
    middle = float("nan")
    if pair is not None:
        first, second = unit(pair.first.float().cpu()), unit(pair.second.float().cpu())
        middle = float((first * second).sum(1).median())
        if crossed:
            similar = first @ second.T
    negative = ids[:, None] != ids
    if not crossed:
        negative &= torch.ones_like(negative).triu(1)  # each pair once
    same = torch.zeros_like(negative)
    if labels is not None:
        same = (labels[:, None] == labels) & (labels >= 0)
    over = negative & (similar >= middle) if middle == middle else torch.zeros_like(negative)
    suspect = same if labels is not None else over
    hard, hard_similarity = _top(similar, negative & ~suspect)
    suspected, suspected_similarity = _top(similar, negative & suspect)
    return {
        "hard": hard,
        "hard_similarity": hard_similarity,
        "suspected": suspected,
        "suspected_similarity": suspected_similarity,
        "counts": np.array([int(negative.sum()), int(over.sum()), int((over & same).sum())]),
        "positive": np.array(middle, np.float32),
        "crossed": np.array(crossed),
    }


def _top(similar: Tensor, among: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(M, 2) pairs in falling order of similarity and (M,) that; no sample is in more than two of them."""
    candidates = similar.masked_fill(~among, -torch.inf).flatten()
    values, index = candidates.topk(min(len(candidates), 100 * _PAIRS))
    pairs: list[tuple[int, int]] = []
    kept: list[float] = []
    seen: dict[int, int] = {}
    for value, place in zip(values.tolist(), index.tolist(), strict=True):
        i, j = divmod(place, len(similar))
        if value == -np.inf or len(pairs) == _PAIRS:
            break
        if max(seen.get(i, 0), seen.get(j, 0)) < 2:
            pairs.append((i, j))
            kept.append(value)
            seen[i], seen[j] = seen.get(i, 0) + 1, seen.get(j, 0) + 1
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(kept, np.float32)


def _worst(values: Tensor, nearest: Tensor, labels: Tensor | None) -> Tensor:
    """(N,) samples, first those with the fewest neighbours of their label, the surest before others; without labels
    those that are farthest from all others.
    """
    if labels is None:
        return values[:, 0].argsort(stable=True)
    hits = (labels[nearest] == labels[:, None]).double().mean(1)
    hits[labels < 0] = 2.0  # of which nothing is known
    return (hits - 1e-3 * values[:, 0].double()).argsort(stable=True)


def _labels(dataset: Dataset, rows: Tensor) -> tuple[Tensor, list[str]]:
    if dataset.labels is None:
        return torch.full((len(rows),), -1), []
    labels = dataset.labels.cpu().long()[rows]
    many = max(int(labels.max()) + 1, 0)
    names = dataset.classes if dataset.classes is not None and len(dataset.classes) >= many else None
    return labels, [str(i) for i in range(many)] if names is None else [str(name) for name in names]


def _texts(dataset: Dataset, rows: Sequence[int]) -> list[str]:
    texts = getattr(dataset, "texts", None)
    if texts is not None:
        return [str(texts[row]) for row in rows]
    return [""] * len(rows) if dataset.captions is None else [dataset.captions[row][0] for row in rows]


def _cut(texts: Sequence[str]) -> NDArray[np.str_]:
    """Long texts lose their end; NUL, which numpy takes for the end, is none of theirs."""
    clean = (text.replace("\0", "") for text in texts)
    return np.array([t if len(t) <= _LONGEST else f"{t[: _LONGEST - 1]}…" for t in clean], np.str_)
