"""The protocols, each a function of a task and a seed; `PROTOCOLS` is the one list of them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nearfar.data.dataset import Captions, counted
from nearfar.data.groups import caption_ids
from nearfar.evaluation.augment import augment
from nearfar.evaluation.classification import classification, probabilities
from nearfar.evaluation.clustering import agreement, cluster_agreement
from nearfar.evaluation.cross_modal import cross_modal
from nearfar.evaluation.ctc import ctc
from nearfar.evaluation.detection_protocol import detection
from nearfar.evaluation.dtw import nearest_by_dtw
from nearfar.evaluation.embedding import embed, progress_bar
from nearfar.evaluation.finetune import Recipe, train_on_labels
from nearfar.evaluation.frames import frame_readout
from nearfar.evaluation.geometry import (
    alignment,
    covariance_spectrum,
    effective_rank,
    lidar,
    neighbourhood,
    participation_ratio,
    uniformity,
)
from nearfar.evaluation.knn import knn_votes, nearest
from nearfar.evaluation.linear import linear_probe
from nearfar.evaluation.metrics import Estimate, accuracy, mean_estimate, resamples, share, with_interval
from nearfar.evaluation.retrieval import retrieval
from nearfar.evaluation.similarity import correlation, pair_cosines
from nearfar.evaluation.task import Measure, Outcome, Part, Task, arrays
from nearfar.evaluation.verification import FALSE_RATES, Roc, draw_pairs, pair_similarity, roc
from nearfar.evaluation.zero_shot import EmbedTexts, class_weights, read_templates, templates_from
from nearfar.evaluation.zero_shot import zero_shot as by_names
from nearfar.losses.arguments import unit
from nearfar.modalities.image.views.presets import simclr
from nearfar.modalities.text.tfidf import sparse_nearest
from nearfar.nn.seeding import seeded_generator

_FEWEST = 3  # training samples of a class, on average, for a linear probe
_PAIR_RESAMPLES = 100  # each sorts all pairs

_LOGIT_SCALE = 100.0  # of an encoder that does not say; calibration depends on it, accuracy does not


def knn(task: Task, seed: int) -> Outcome:
    """Weighted k-NN: all metrics for the first k of the settings, the accuracy for the others."""
    settings = task.settings
    most = min(max(settings.neighbours), len(task.train))
    query, keys = task.test_features, task.train_features
    if query.is_sparse:  # of length one already
        similarity, index = sparse_nearest(query, keys, k=most)  # (N, most)
    else:
        similarity, index = nearest(unit(query), unit(keys), k=most, search=settings.search)
    labels = task.train.labels[index]
    outcome: Outcome | None = None
    for k in dict.fromkeys(min(k, most) for k in settings.neighbours):
        scores = knn_votes(
            similarity[:, :k], labels[:, :k], temperature=settings.temperature, classes=task.classes
        )  # (N, C)
        if outcome is None:
            outcome = _classified(task, scores, seed)
        else:
            outcome.metrics[f"accuracy, k = {k}"] = accuracy(scores, task.test.labels)
    assert outcome is not None
    return outcome


def linear(task: Task, seed: int) -> Outcome:
    """Full-batch logistic regression on frozen features, its strength chosen on a part of the training rows."""
    if len(task.train) < _FEWEST * task.classes:
        raise ValueError(
            f"{len(task.train):,} training samples of {task.classes:,} classes are too few to fit and choose a "
            f"classifier on, expected {_FEWEST} of each at least"
        )
    probe = linear_probe(
        task.train_features,
        task.train.labels,
        classes=task.classes,
        validation=task.settings.validation,
        seed=seed,
    )
    return _classified(task, probabilities(probe(task.test_features)), seed)


def sgd(task: Task, seed: int) -> Outcome:
    """A linear layer on the frozen encoder, trained by SGD on augmented images, stopped on a validation split."""
    settings = task.settings.sgd
    recipe = Recipe(
        frozen=True,
        optimizer="sgd",
        lr=settings.lr * settings.batch_size / 256,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        patience=settings.patience,
        validation=task.settings.validation,
    )
    trained = train_on_labels(task, recipe, labels=1.0, seed=seed, words=f"{task.name}: SGD probe")
    return _classified(task, trained.scores, seed)


def finetune(task: Task, seed: int) -> Outcome:
    """Encoder and linear layer, trained on parts of the labels. Of the untrained encoder: supervised from scratch."""
    settings = task.settings.finetune
    recipe = Recipe(
        frozen=settings.frozen,
        optimizer="adamw",
        lr=settings.lr,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        patience=settings.patience,
        # What is learned from scratch has no layers worth keeping: slowing them would weaken the baseline.
        layer_decay=1.0 if task.name == "untrained" else settings.layer_decay,
        weight_decay=0.05,
        validation=max(0.2, task.settings.validation),  # of few labels, a tenth would choose nothing
    )
    metrics, curves = {}, {}
    amounts: list[tuple[float | int, str]] = [(count, f"{count} a class") for count in sorted(settings.per_class)]
    for part, words in amounts or [(part, f"{100 * part:g} % labels") for part in sorted(settings.labels)]:
        trained = train_on_labels(task, recipe, labels=part, seed=seed, words=f"{task.name}: fine-tuning on {words}")
        outcome = _classified(task, trained.scores, seed)
        metrics[f"accuracy, {words}"] = outcome.metrics["accuracy"]
        metrics[f"balanced accuracy, {words}"] = outcome.metrics["balanced accuracy"]
        curves = outcome.curves  # of most labels
    return Outcome(metrics, curves)


def retrieve(task: Task, seed: int) -> Outcome:
    """Each test image asks the other test images for its class."""
    settings = task.settings
    labels = task.test.labels
    found = retrieval(task.test_features, labels, cutoffs=settings.cutoffs, queries=settings.queries)
    metrics = {"mAP": mean_estimate(found.average_precision, count=settings.resamples, seed=seed)}
    for k, hits in found.recall.items():
        metrics[f"recall@{k}"] = share(hits)
    for k, shares in found.precision.items():
        metrics[f"precision@{k}"] = mean_estimate(shares, count=settings.resamples, seed=seed)
    alone = int((labels.bincount()[labels] < 2).sum())
    notes = [f"{alone} test images are alone in their class and were not asked for"] if alone else []
    return Outcome(metrics, arrays(average_precision=found.average_precision, queries=found.queries), notes)


def verification(task: Task, seed: int) -> Outcome:
    """Same or different class? As many pairs of either kind; images, not pairs, are resampled: pairs share images."""
    labels, count = task.test.labels, min(_PAIR_RESAMPLES, task.settings.resamples)
    pairs = draw_pairs(labels, most=task.settings.pairs, seed=seed)
    similarity = pair_similarity(task.test_features, pairs)
    curve = roc(similarity, pairs.same)
    found = _verification_metrics(curve, len(similarity) // 2)
    draws: dict[str, list[float]] = {name: [] for name in found}
    for weights in resamples(labels, count=count, seed=seed):
        for w in weights:
            often = (w[pairs.first] * w[pairs.second]).long()  # (P,)
            same = pairs.same.repeat_interleave(often)
            if not 0 < int(same.sum()) < len(same):
                continue
            redrawn = roc(similarity.repeat_interleave(often), same)
            for name, value in _verification_metrics(redrawn, len(similarity) // 2).items():
                draws[name].append(value)
    n = len(similarity)
    metrics = {
        name: with_interval(value, torch.tensor(draws[name]), n) if draws[name] else Estimate(value, None, None, n)
        for name, value in found.items()
    }
    curves = {"false_rate": curve.false_rate, "true_rate": curve.true_rate}
    return Outcome(metrics, curves | arrays(similarity=similarity, same=pairs.same))


def _verification_metrics(curve: Roc, negatives: int) -> dict[str, float]:
    found = {"AUC": curve.auc, "EER": curve.equal_error_rate}
    for false_rate in FALSE_RATES:
        if false_rate * negatives >= 10:  # fewer pairs cannot tell so small a rate
            found[f"TAR@FAR={false_rate:g}"] = curve.true_rate_at(false_rate)
    return found


def clustering(task: Task, seed: int) -> Outcome:
    """k-means of the test features into as many clusters as there are classes."""
    labels = task.test.labels
    clusters, found = cluster_agreement(task.test_features, labels, seed=seed)
    draws: dict[str, list[float]] = {name: [] for name in found}
    for weights in resamples(labels, count=task.settings.resamples, seed=seed):
        for w in weights:
            for name, value in agreement(*(x.repeat_interleave(w.long()) for x in (clusters, labels))).items():
                draws[name].append(value)
    metrics = {
        name: with_interval(value, torch.tensor(draws[name]), len(labels), least=-1.0 if name == "ARI" else 0.0)
        for name, value in found.items()
    }
    return Outcome(metrics, arrays(clusters=clusters))


def geometry(task: Task, seed: int) -> Outcome:
    """The shape of the test embeddings; alignment and LiDAR on several SimCLR views of some of the images."""
    settings, h = task.settings, task.test_features
    n = len(h)
    seen = torch.arange(n)[:: max(1, n // settings.viewed)][: settings.viewed]
    views = torch.stack([_view(task, seen, seed, index) for index in range(settings.views)], 1)  # (n, q, F)
    spectrum = covariance_spectrum(h)
    near = neighbourhood(h, task.test.labels if task.labelled else None)
    values = {
        "alignment": (float(alignment(views[:, 0], views[:, 1])), len(seen)),
        "uniformity": (float(uniformity(h)), n),
        "RankMe": (float(effective_rank(h)), n),
        "LiDAR": (lidar(views), len(seen)),
        "participation ratio": (participation_ratio(spectrum), n),
        "hubness": (near.hubness, n),
    }
    metrics = {name: Estimate(value, None, None, count) for name, (value, count) in values.items()}
    metrics["orphans"] = share(near.occurrence == 0)
    if near.purity is not None:
        metrics["neighbourhood purity"] = mean_estimate(near.purity, count=settings.resamples, seed=seed)
    notes = []
    if len(seen) < h.shape[1] or n < h.shape[1]:
        notes.append(
            f"{task.name}: {h.shape[1]} features from {n} images, {len(seen)} of them in several views: ranks are "
            "bounded by these numbers, too"
        )
    return Outcome(metrics, arrays(spectrum=spectrum, occurrence=near.occurrence), notes)


def _view(task: Task, places: Tensor, seed: int, index: int) -> Tensor:
    """(K, F) features of one random view of each of these test images."""
    generator = seeded_generator(seed, 0, index)

    def varied(images: Tensor) -> Tensor:
        if task.augment is not None:
            return task.augment(images, generator)
        return augment(images, simclr(images.shape[-1])[0], generator)

    return embed(
        task.encoder,
        task.test.images,
        prepare=lambda images: task.prepare(varied(images)),
        batch_size=task.batch_size,
        device=task.device,
        rows=task.test.rows[places],
    )


def zero_shot(task: Task, seed: int) -> Outcome:
    """The names of the classes as the classifier: no training image is looked at."""
    names = task.train.images.classes
    if names is None:
        raise ValueError("the classes have no names, which zero-shot classification reads")
    templates: str | Sequence[str] | None = task.settings.templates
    if templates is None and (told := _captions(task.train)) is not None:
        texts = (text for several in told for text in several)
        templates = templates_from(texts, names) or None
    weights = class_weights(_reading(task), names, templates, batch_size=task.batch_size)
    outcome = by_names(
        task.test_features,
        task.test.labels,
        weights,
        logit_scale=float(getattr(task.encoder, "logit_scale", _LOGIT_SCALE)),
        count=task.settings.resamples,
        seed=seed,
    )
    used = read_templates(templates)
    whose = " of the training captions" if isinstance(templates, tuple) else ""
    outcome.notes.append(
        f"zero-shot: {counted(len(used), 'sentence')}{whose}, such as {used[0]!r}; chance is {1 / len(names):.1%}"
    )
    return outcome


def captions(task: Task, seed: int) -> Outcome:
    """Each image asks for its captions and each caption for its image; captions that say the same are all right."""
    of = _captions(task.test)
    if of is None:
        raise ValueError(f"the {task.test.name} part has no captions")
    texts = [text for several in of for text in several]
    owner = torch.arange(len(of)).repeat_interleave(torch.tensor([len(several) for several in of]))
    ids, stands_for, notes = caption_ids(texts), None, []
    if hasattr(task.encoder, "embed_texts"):
        embedded = _embedded(task, texts)
    else:
        rows, stands_for = _examples(task, texts)
        embedded = task.train_features[rows]
        missing = len(texts) - len(stands_for.unique())
        notes = [
            f"{task.name}: a caption is as similar as the training images that have it"
            + (f"; {missing} of {len(texts)} have none" if missing else "")
        ]
    outcome = cross_modal(
        task.test_features,
        embedded,
        owner,
        ids=ids,
        stands_for=stands_for,
        cutoffs=task.settings.cutoffs,
        count=task.settings.resamples,
        seed=seed,
    )
    outcome.notes.extend([*notes, f"captions: by chance recall@1 is {1 / len(texts):.2%}, from text {1 / len(of):.2%}"])
    return outcome


def _captions(part: Part) -> Captions | None:
    """Of each sample of the part."""
    found: Captions | None = getattr(part.images, "captions", None)
    return None if found is None else [found[row] for row in part.rows.tolist()]


def _examples(task: Task, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Training images with one of these captions: (E,) their places, and (E,) the number of the caption."""
    known: dict[str, list[int]] = {}
    for place, several in enumerate(_captions(task.train) or ()):
        for text in dict.fromkeys(several):
            known.setdefault(text, []).append(place)
    pairs = [(place, number) for number, text in enumerate(texts) for place in known.get(text, ())]
    if not pairs:
        raise ValueError("it reads no texts, and no training image has a caption of the test part, to find it by")
    places, numbers = torch.tensor(pairs).T
    return places, numbers


def similarity(task: Task, seed: int) -> Outcome:
    """Are pairs of sentences as similar as people say?"""
    pairs = getattr(task.test.images, "source", None)
    first, second, scores = (getattr(pairs, name, None) for name in ("texts", "partners", "scores"))
    if first is None or second is None or scores is None:
        raise ValueError(f"the {task.test.name} part has no pairs of sentences with scores")
    compare = getattr(task.encoder, "cosines", None)
    cosines = (
        pair_cosines(*(_embedded(task, x) for x in (first, second))) if compare is None else compare(first, second)
    )
    return correlation(cosines, scores, count=task.settings.resamples, seed=seed)


def _embedded(task: Task, texts: Sequence[str]) -> Tensor:
    """(M, F) of M texts, on the CPU."""
    embed_texts, step = _reading(task), task.batch_size
    return torch.cat([embed_texts(list(texts[i : i + step])).cpu() for i in range(0, len(texts), step)])


def _reading(task: Task) -> EmbedTexts:
    embed_texts: EmbedTexts | None = getattr(task.encoder, "embed_texts", None)
    if embed_texts is None:
        raise ValueError("it reads no texts; expected an encoder of images and texts, such as one that CLIP trained")
    return embed_texts


def dtw(task: Task, seed: int) -> Outcome:
    """The nearest training series by dynamic time warping, and by Euclid, over the prepared series themselves."""
    train, test = (_series(task, part) for part in (task.train, task.test))
    band, longest = task.settings.band, max(train.shape[2], test.shape[2])
    if (cells := len(train) * len(test) * longest**2 * min(1.0, 2 * band)) > task.settings.cells:
        raise ValueError(
            f"{len(train):,} × {len(test):,} series of {longest} steps are {cells:.1e} cells, more than "
            f"{task.settings.cells:.1e}; raise --protocols.cells, or set a narrower --protocols.band"
        )
    words = f"{task.name}: dynamic time warping" if task.progress else False
    with progress_bar(words, len(test)) as advance:
        index = nearest_by_dtw(test, train, band=band, advance=advance)
    plain = torch.cdist(task.test_features, task.train_features).argmin(1)
    right = (train_labels := task.train.labels)[index] == task.test.labels
    return Outcome({"accuracy": share(right), "accuracy, Euclidean": share(train_labels[plain] == task.test.labels)})


def _series(task: Task, part: Part) -> Tensor:
    """(N, C, T) prepared series."""
    found = task.prepare(part.fetch(torch.arange(len(part))))
    if found.ndim != 3:
        raise ValueError(f"the {part.name} part is no series, which dynamic time warping compares")
    return found


def _classified(task: Task, scores: Tensor, seed: int) -> Outcome:
    found = classification(scores, task.test.labels, classes=task.classes, count=task.settings.resamples, seed=seed)
    found.curves["classes"] = np.array([str(name) for name in task.names])
    return found


PROTOCOLS: dict[str, Measure] = {
    "knn": Measure(
        knn, "weighted k-nearest neighbours", "accuracy", ("neighbours", "temperature", "search", "resamples")
    ),
    "linear": Measure(linear, "linear probe, full batch", "accuracy", ("validation", "resamples"), seeded=True),
    "sgd": Measure(
        sgd, "linear probe by SGD, on augmented images", "accuracy", ("sgd", "validation", "resamples"), seeded=True
    ),
    "finetune": Measure(
        finetune,
        "fine-tuning on parts of the labels",
        "accuracy, .* (labels|a class)",
        ("finetune", "validation", "resamples"),
        seeded=True,
    ),
    "dtw": Measure(
        dtw, "nearest neighbour by dynamic time warping, of series", "accuracy", ("band", "cells"), raw=True
    ),
    "frames": Measure(
        frame_readout,
        "linear readout of single frames in time",
        "accuracy, .*",
        ("frames", "validation", "resamples"),
        seeded=True,
        frames=True,
    ),
    "retrieval": Measure(
        retrieve, "find the same class: mAP, recall@k, precision@k", "mAP", ("cutoffs", "queries", "resamples")
    ),
    "verification": Measure(
        verification, "same or different class: AUC, EER, TAR@FAR", "AUC", ("pairs", "resamples"), seeded=True
    ),
    "clustering": Measure(
        clustering, "k-means against the classes: NMI, ARI, purity", "NMI", ("resamples",), seeded=True
    ),
    "geometry": Measure(
        geometry,
        "alignment, uniformity, RankMe, LiDAR, spectrum, hubness, purity",
        "RankMe",
        ("views", "viewed", "resamples"),
        needs="images",
    ),
    "detection": Measure(
        detection, "a detector on boxes: AP, AP50, AP75", "AP", ("detection", "resamples"), seeded=True, needs="boxes"
    ),
    "ctc": Measure(
        ctc,
        "words in a row, by a CTC head on frames: word error rate",
        "word error rate",
        ("ctc", "resamples"),
        seeded=True,
        needs="words",
    ),
    "zero_shot": Measure(
        zero_shot, "classification by the names of the classes", "accuracy", ("templates", "resamples"), reads=True
    ),
    "captions": Measure(
        captions,
        "images and their captions, each found by the other",
        "recall@1,.*",
        ("cutoffs", "resamples"),
        needs="images",
        reads=True,
        examples=True,
    ),
    "similarity": Measure(
        similarity,
        "pairs of sentences against human scores",
        "Spearman",
        ("resamples",),
        needs="images",
        reads=True,
    ),
}
