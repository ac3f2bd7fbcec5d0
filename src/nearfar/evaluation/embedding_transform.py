"""Which transform makes the embeddings of an encoder better, found without labels; and its fit."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from nearfar.data.dataset import Dataset, counted
from nearfar.evaluation.embedding import dropout_enabled, embed, evaluation_mode
from nearfar.losses.arguments import l2_normalize
from nearfar.model.encoder import Encoder
from nearfar.nn.whitening import EmbeddingTransform, TransformKind, fit_transform

EmbeddingSetting = Literal["auto", "plain", "centered", "standardized", "whitened"]
FITTED = 20_000  # training samples that mean and covariance are taken from, at most
FITTED_PER_FEATURE = 20  # and no more than so many for each feature, but at least LEAST_FITTED
LEAST_FITTED = 5_000
COMPARED = 1_000  # samples whose views are looked for
LEAST_COMPARED = 16  # fewer tell nothing
AUTO: tuple[TransformKind, ...] = ("whitened",)  # what `auto` may take in place of "plain"
NEARLY = 0.9  # of the score of "plain" is enough: see benchmarks/results/embedding.md


@dataclass(frozen=True)
class EmbeddingChoice:
    """How the features of an encoder become its embeddings, and why.

    Attributes:
        kind: what was chosen.
        setting: what was asked for.
        samples: that the transform was fitted to; 0 for "plain".
        scores: by kind, how well samples find their own views, from 0 to 1; empty if there was nothing to choose.
        compared: samples in that comparison.
        note: why nothing could be fitted or compared.
    """

    kind: TransformKind
    setting: EmbeddingSetting
    samples: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    note: str | None = None

    def card(self) -> dict[str, Any]:
        """For the card."""
        return {name: value for name, value in asdict(self).items() if value not in (None, {}, 0)}

    def line(self) -> str | None:
        """For the console; None if the embeddings are plain because they were asked to be."""
        if self.note is not None:
            return f"embeddings: {self.kind}; {self.note}"
        if not self.scores:
            return (
                None
                if self.kind == "plain"
                else f"embeddings: {self.kind}, fitted to {counted(self.samples, 'training sample')}"
            )
        shown = ", ".join(f"{kind} {score:.2f}" for kind, score in self.scores.items())
        return (
            f"embeddings: {self.kind}, chosen without labels by how well {self.compared:,} samples find their own "
            f"views ({shown}; override with --embedding)"
        )


def choose_transform(
    encoder: Encoder, train: Dataset, validation: Dataset | None, setting: EmbeddingSetting, *, seed: int = 0
) -> tuple[EmbeddingTransform | None, EmbeddingChoice]:
    """The transform of an encoder's features and how it was chosen; no label is read.

    `auto` fits each of AUTO to training samples, and looks on validation samples (training samples if there are none)
    how well each sample finds its own augmented views among those of all the others, by cosine: the mean reciprocal
    rank. Whitened embeddings are taken unless they are clearly worse at it (NEARLY): with labels, they were better on
    nearly every data set, and the score fell where they were not (benchmarks/results/embedding.md).

    Args:
        encoder: its features are transformed, whether or not it has a transform already.
        train: samples to fit to.
        validation: samples to compare on.
        seed: draws the samples, where there are more than needed.
    """
    if setting == "plain":
        return None, EmbeddingChoice("plain", setting)
    if len(encoder.modality.queries) > 1:
        kind = encoder.modality.queries[0]
        note = f"its {kind}s and texts share one space, which a transform of one of them would leave"
        return None, EmbeddingChoice("plain", setting, note=note)
    plain = encoder.without_transform()
    most = min(FITTED, max(LEAST_FITTED, FITTED_PER_FEATURE * encoder.num_features))
    rows = _some(len(train), most, seed)
    h = embed(plain, train, prepare=plain.prepare, rows=rows)
    h = h[h.isfinite().all(1)]
    try:
        return _chosen(plain, h, train, validation, setting, seed)
    except ValueError as error:  # too few samples, or collapsed: such an encoder is still an encoder
        return None, EmbeddingChoice("plain", setting, note=str(error))


def _chosen(
    plain: Encoder, h: Tensor, train: Dataset, validation: Dataset | None, setting: EmbeddingSetting, seed: int
) -> tuple[EmbeddingTransform | None, EmbeddingChoice]:
    if setting != "auto":
        return fit_transform(h, setting), EmbeddingChoice(setting, setting, len(h))
    fitted: dict[TransformKind, EmbeddingTransform | None] = {"plain": None}
    fitted |= {kind: fit_transform(h, kind) for kind in AUTO}
    samples = train if validation is None or len(validation) < LEAST_COMPARED else validation
    if len(samples) < LEAST_COMPARED:
        return None, EmbeddingChoice("plain", setting, note=f"{len(samples)} samples are too few to choose by")
    views = embedded_views(plain, samples, _some(len(samples), COMPARED, seed))
    if views is None:
        return None, EmbeddingChoice("plain", setting, note="two views of a sample do not differ")
    scores = {kind: retrieval(*((x if t is None else t(x)) for x in views)) for kind, t in fitted.items()}
    best = best_kind(scores)
    rounded: dict[str, float] = {kind: round(score, 4) for kind, score in scores.items()}
    count = 0 if best == "plain" else len(h)
    return fitted[best], EmbeddingChoice(best, setting, count, rounded, len(views[0]))


def best_kind(scores: Mapping[TransformKind, float]) -> TransformKind:
    """The kind with the highest score but for "plain", if it has nearly that of "plain".

    >>> best_kind({"plain": 0.50, "whitened": 0.47}), best_kind({"plain": 0.50, "whitened": 0.40})
    ('whitened', 'plain')
    """
    best = max((kind for kind in scores if kind != "plain"), key=lambda kind: scores[kind])
    return best if scores[best] >= NEARLY * scores["plain"] else "plain"


def retrieval(h: Tensor, *views: Tensor) -> float:
    """Mean reciprocal rank of each sample's own view among the views of all samples, by cosine; ties count against it.

    Args:
        h: (N, D) embeddings of samples.
        views: (N, D) each, of augmented views of the same samples.

    >>> h = torch.eye(3)
    >>> retrieval(h, h), round(retrieval(h, h[[1, 0, 2]]), 3)
    (1.0, 0.556)
    """
    found, h = [], l2_normalize(h)
    for view in views:
        similarity = h @ l2_normalize(view).T  # (N, N)
        own = similarity.diagonal()
        ranks = (similarity >= own[:, None]).sum(1)  # its own is among them
        found.append((1 / ranks.float()).mean())
    return float(torch.stack(found).mean())


def _some(count: int, most: int, seed: int) -> Tensor:
    """Row numbers in rising order, drawn where there are more than wanted."""
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort().values


@torch.no_grad()
def embedded_views(encoder: Encoder, data: Dataset, rows: Tensor) -> list[Tensor] | None:
    """(N, F) of samples as they are, and of two views of each, as in training; None if the views do not differ."""
    found: list[list[Tensor]] = [[], [], []]
    device = encoder.device
    with evaluation_mode(encoder):
        for number, part in enumerate(rows.split(256)):
            samples = data.fetch(part).to(device)
            views = encoder.modality.pair_of_views(samples, data, part, seed=0, step=number)[:2]
            alone = views[0] is views[1]  # dropout makes the views
            with dropout_enabled(encoder, number, device) if alone else nullcontext():
                first, second = (encoder(view) for view in views)
            for place, h in zip(found, (encoder(encoder.prepare(samples)), first, second), strict=True):
                place.append(h.float().cpu())
    joined = [torch.cat(each) for each in found]
    finite = torch.stack([x.isfinite().all(1) for x in joined]).all(0)
    joined = [x[finite] for x in joined]
    return None if len(joined[0]) < 2 or torch.equal(joined[1], joined[2]) else joined
