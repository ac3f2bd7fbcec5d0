"""Some samples as an encoder sees them: their map, nearest neighbors, and the negatives most alike."""

import importlib.util
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.cache import write_file
from nearfar.data.dataset import Dataset, counted
from nearfar.evaluation.clustering import k_means
from nearfar.evaluation.embedding import Encoder, Prepare, embed
from nearfar.losses.arguments import l2_normalize
from nearfar.messages import one_line, shorten
from nearfar.report.projection import principal_components, umap_points
from nearfar.report.thumbnail_sheet import make_sheet, sheet_side
from nearfar.safe_read import opened_npz

SAMPLES = "report/samples.npz"  # in the folder of a run
MOST = 2000  # samples of a report
SIDE = 48  # pixels of a thumbnail, at most
_NEIGHBORS = 8
_QUERIES = 6  # whose neighbours are shown: so many at random, so many of the worst
_PAIRS = 12  # shown of each kind
_COMPONENTS = 32  # kept, of which two are the map
_CLUSTERS = 10  # where there are no labels to say how many
_MAX_TEXT = 300  # characters of a name or text
_MIN_UMAP = 20  # samples for a UMAP

Pictures = Callable[[Tensor, int], NDArray[np.uint8] | None]  # (B, ...) fetched samples to (B, S, S, 3), S at most that


@dataclass(frozen=True)
class ReportSamples:
    """N samples; `nearest`, `random`, `worst`, `hard` and `suspected` hold their numbers, 0 to N - 1."""

    data: NDArray[np.str_]  # (3,) name of the data, name of the split, number of samples in it
    names: NDArray[np.str_]  # (N,) such as file paths
    texts: NDArray[np.str_]  # (N,) the sentence or the caption, or empty
    labels: NDArray[np.int64]  # (N,) -1 where there is none
    classes: NDArray[np.str_]  # (C,) names of the labels
    clusters: NDArray[np.int64]  # (N,) by k-means on the unit embeddings
    components: NDArray[np.float32]  # (N, P) principal components of the unit embeddings
    variance: NDArray[np.float32]  # (P,) their shares
    nearest: NDArray[np.int64]  # (N, K) most similar first
    similarity: NDArray[np.float32]  # (N, K) cosines
    random: NDArray[np.int64]  # (Q,)
    worst: NDArray[np.int64]  # (Q,) with the worst neighbours
    hard: NDArray[np.int64]  # (M, 2) negatives with the highest similarity; for image-text pairs: image, text
    hard_similarity: NDArray[np.float32]  # (M,)
    suspected: NDArray[np.int64]  # (M, 2) suspected false negatives
    suspected_similarity: NDArray[np.float32]  # (M,)
    counts: NDArray[np.int64]  # (3,) negative pairs; those above the median positive; those also of the same label
    positive: NDArray[np.float32]  # () median similarity of two views of a sample; nan where not measured
    crossed: NDArray[np.bool_]  # () whether a pair is an image and a text
    sheet: NDArray[np.uint8]  # bytes of a WebP or JPEG with all thumbnails; empty where there are none
    umap: NDArray[np.float32]  # (N, 2), or (0, 2) where it was not computed

    def __len__(self) -> int:
        return len(self.names)

    def save(self, folder: Path | str) -> Path:
        """Write `report/samples.npz` into a run folder."""
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **vars(self))
        return write_file(Path(folder) / SAMPLES, content.getvalue())

    @classmethod
    def load(cls, path: Path | str) -> "ReportSamples":
        """Read what `save` wrote; an error where arrays do not fit together."""
        with opened_npz(Path(path)) as content:
            found = cls(**{name: content[name] for name in cls.__dataclass_fields__})
        found.check()
        return found

    def check(self) -> None:
        """Refuse arrays that are of another kind, or do not fit together."""
        kinds = {"str_": "U", "int64": "iu", "float32": "f", "bool": "b", "uint8": "u"}
        for name, field in self.__dataclass_fields__.items():
            wanted = next(kind for stated, kind in kinds.items() if stated in str(field.type))
            if (found := getattr(self, name).dtype).kind not in wanted:
                raise ValueError(f"{name} of a report are {found}, expected {field.type}")
        n, k, p = len(self.names), self.nearest.shape[-1], self.components.shape[-1]
        shapes = {"data": (3,), "texts": (n,), "labels": (n,), "clusters": (n,), "components": (n, p)}
        shapes |= {"nearest": (n, k), "similarity": (n, k), "variance": (p,), "counts": (3,)}
        shapes |= {"hard": (len(self.hard_similarity), 2), "suspected": (len(self.suspected_similarity), 2)}
        shapes |= {"umap": (len(self.umap), 2)}
        wrong = [name for name, shape in shapes.items() if getattr(self, name).shape != shape]
        numbers = (self.nearest, self.random, self.worst, self.hard, self.suspected)
        wrong += ["numbers"] if any(x.size and not 0 <= x.min() <= x.max() < n for x in numbers) else []
        wrong += ["labels"] if n and not -1 <= self.labels.min() <= self.labels.max() < len(self.classes) else []
        wrong += ["umap"] if len(self.umap) not in (0, n) else []
        floats = (self.components, self.similarity, self.umap, self.hard_similarity, self.suspected_similarity)
        wrong += ["values"] if not all(np.isfinite(x).all() for x in floats) else []
        if wrong or n < 2 or p < 2:
            raise ValueError(f"{', '.join(wrong) or 'samples'} of a report do not fit together")
        if self.sheet.size:
            sheet_side(self.sheet.tobytes(), n)


class Positives(NamedTuple):
    """Two embeddings of each of N samples that should be alike: (N, F) twice."""

    first: Tensor
    second: Tensor
    crossed: bool  # the second are embeddings of texts


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
) -> ReportSamples:
    """Draw samples of a data set, embed them and compare them.

    Args:
        encoder, prepare: as in `embed`.
        dataset: at least two samples.
        pictures: fetched samples to thumbnails, None where they have none.
        ids: (len(dataset),) samples with equal ids are not negatives of each other; None: all ids differ.
        positives: (N,) numbers of samples to two embeddings each, by two training views; None: not measured.
        data, split: names for the page.
        seed: of the draw and of the clusters.
        most: samples.
    """
    if len(dataset) < 2:
        raise ValueError(f"{len(dataset)} samples, expected at least two to compare")
    drawn = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))[:most].sort().values  # (N,)
    h = embed(encoder, dataset, prepare=prepare, rows=drawn)
    if not bool(h.isfinite().all()):
        raise ValueError("some embeddings are not finite")
    z = l2_normalize(h)
    labels, classes = _labels(dataset, drawn)
    known = len(labels[labels >= 0].unique())
    similar = z @ z.T  # (N, N), N at most 2,000
    similar.fill_diagonal_(-torch.inf)
    nearest = similar.topk(min(_NEIGHBORS, len(z) - 1))
    pair = positives(drawn) if positives is not None else None
    negatives = _negatives(similar, (drawn if ids is None else ids[drawn]).cpu(), labels if known > 1 else None, pair)
    components, variance = principal_components(z, _COMPONENTS)
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))
    return ReportSamples(
        data=np.array([data, split, f"{len(dataset)}"], np.str_),
        names=_text_array([str(dataset.names[row]) for row in drawn.tolist()]),
        texts=_text_array(_texts(dataset, drawn.tolist())),
        labels=labels.numpy(),
        classes=_text_array(classes),
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


def add_umap(folder: Path, notify: Callable[[str], None] | None = None) -> str | None:
    """Add UMAP to the samples of a run folder, where it is possible and missing; returns why it failed, if it did."""
    path = folder / SAMPLES
    if not path.is_file() or importlib.util.find_spec("umap") is None:
        return None
    try:
        samples = ReportSamples.load(path)
    except Exception:  # the page reports it
        return None
    if len(samples.umap) or len(samples) < _MIN_UMAP:
        return None
    if notify is not None:
        notify(f"umap: laying out {counted(len(samples), 'sample')}; compiling first may take a minute")
    try:
        replace(samples, umap=umap_points(samples.components)).save(folder)
    except Exception as error:  # in another package: the page works without
        return f"UMAP failed: {one_line(error)}."
    return None


def _thumbnails(dataset: Dataset, rows: Tensor, pictures: Pictures) -> bytes:
    made = []
    for part in rows.split(256):
        some = pictures(dataset.fetch(part), SIDE)
        if some is None:
            return b""
        made.append(some)
    return make_sheet(np.concatenate(made))


def _negatives(similar: Tensor, ids: Tensor, labels: Tensor | None, pair: Positives | None) -> dict[str, Any]:
    """The negative pairs most alike: hard ones, and suspected false ones (same label; without labels, those above the
    median positive).
    """
    crossed = pair is not None and pair.crossed
    middle = float("nan")
    if pair is not None:
        first, second = l2_normalize(pair.first.float().cpu()), l2_normalize(pair.second.float().cpu())
        middle = float((first * second).sum(1).median())
        if crossed:
            similar = first @ second.T
    negative = ids[:, None] != ids
    if not crossed:
        negative &= torch.ones_like(negative).triu(1)  # each pair once
    same = torch.zeros_like(negative)
    if labels is not None:
        same = (labels[:, None] == labels) & (labels >= 0)
    above = negative & (similar >= middle) if middle == middle else torch.zeros_like(negative)
    suspect = same if labels is not None else above
    hard, hard_similarity = _most_similar(similar, negative & ~suspect)
    suspected, suspected_similarity = _most_similar(similar, negative & suspect)
    return {
        "hard": hard,
        "hard_similarity": hard_similarity,
        "suspected": suspected,
        "suspected_similarity": suspected_similarity,
        "counts": np.array([int(negative.sum()), int(above.sum()), int((above & same).sum())]),
        "positive": np.array(middle, np.float32),
        "crossed": np.array(crossed),
    }


def _most_similar(similar: Tensor, mask: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(M, 2) pairs, most similar first, and (M,) their similarity; each sample is in at most two of them."""
    candidates = similar.masked_fill(~mask, -torch.inf).flatten()
    values, index = candidates.topk(min(len(candidates), 100 * _PAIRS))
    pairs: list[tuple[int, int]] = []
    kept: list[float] = []
    used: dict[int, int] = {}
    for value, place in zip(values.tolist(), index.tolist(), strict=True):
        i, j = divmod(place, len(similar))
        if value == -np.inf or len(pairs) == _PAIRS:
            break
        if max(used.get(i, 0), used.get(j, 0)) < 2:
            pairs.append((i, j))
            kept.append(value)
            used[i], used[j] = used.get(i, 0) + 1, used.get(j, 0) + 1
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(kept, np.float32)


def _worst(values: Tensor, nearest: Tensor, labels: Tensor | None) -> Tensor:
    """(N,) samples, worst first: fewest neighbours of the own label, ties by similarity; without labels, farthest."""
    if labels is None:
        return values[:, 0].argsort(stable=True)
    hits = (labels[nearest] == labels[:, None]).double().mean(1)
    hits[labels < 0] = 2.0  # unknown: last
    return (hits - 1e-3 * values[:, 0].double()).argsort(stable=True)


def _labels(dataset: Dataset, rows: Tensor) -> tuple[Tensor, list[str]]:
    if dataset.labels is None:
        return torch.full((len(rows),), -1), []
    labels = dataset.labels.cpu().long()[rows]
    many = max(int(labels.max()) + 1, 0)
    names = dataset.classes if dataset.classes is not None and len(dataset.classes) >= many else None
    return labels, [str(i) for i in range(many)] if names is None else [str(name) for name in names]


def _texts(dataset: Dataset, rows: Sequence[int]) -> list[str]:
    if dataset.texts is not None:
        return [dataset.texts[row] for row in rows]
    return [""] * len(rows) if dataset.captions is None else [dataset.captions[row][0] for row in rows]


def _text_array(texts: Sequence[str]) -> NDArray[np.str_]:
    """Texts cut to a length, without NUL, which numpy takes for the end."""
    return np.array([shorten(text.replace("\0", ""), _MAX_TEXT) for text in texts], np.str_)
