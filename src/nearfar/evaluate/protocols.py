"""The whole evaluation: every encoder under every protocol, always beside raw input and an untrained encoder."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.markup import escape
from torch import Tensor, nn

from nearfar.evaluate.embeddings import Encoder, Images, Prepare, embed
from nearfar.evaluate.knn import knn_accuracy
from nearfar.evaluate.linear import linear_accuracy
from nearfar.evaluate.metrics import Estimate
from nearfar.evaluate.results import Results, Row
from nearfar.losses.arguments import check_choice

_RAW_SIDE = 32  # raw images are averaged down to at most this side: more pixels only make the probe slower


class LabelledImages(Images, Protocol):
    """Images of which some or all may have a label."""

    @property
    def labels(self) -> Tensor | None:
        """(N,) int64 with -1 where an image has none, or None."""
        ...

    @property
    def classes(self) -> Sequence[str] | None:
        """Names of the labels, or None."""
        ...


# (M, F) features, (M,) labels, (N, F) features, (N,) labels, C, seed
Measure = Callable[[Tensor, Tensor, Tensor, Tensor, int, int], Estimate]


def _knn(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, classes: int, _: int) -> Estimate:
    return knn_accuracy(train, labels, test, test_labels, classes=classes)


def _linear(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, classes: int, seed: int) -> Estimate:
    return linear_accuracy(train, labels, test, test_labels, classes=classes, seed=seed)


PROTOCOLS: dict[str, Measure] = {"knn": _knn, "linear": _linear}


def evaluate(
    encoders: Mapping[str, Encoder],
    train: LabelledImages,
    test: LabelledImages,
    *,
    prepare: Prepare,
    raw: Prepare | None = None,
    protocols: Sequence[str] = ("knn", "linear"),
    seed: int,
    data: str = "data",
    split: str = "test",
    batch_size: int = 256,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Results:
    """Measure frozen encoders on held-out data, beside raw pixels and an untrained encoder.

    Args:
        encoders: by name, each (B, ...) to (B, F). "untrained" is made from "trained" where it is not given
            (`untrained_copy`); "raw" is the prepared pixels.
        train: images whose labels the protocols may use.
        test: images on which the number is measured, and that nothing is fitted or chosen on.
        prepare: (B, 3, S, S) uint8 to the encoders' input, without randomness.
        raw: the same for the baseline "raw", where `prepare` does more than resize and normalise: what pixels know
            before that. What they know after it is then measured by the name "prepared", by k-NN alone: on pixels the
            linear probe takes longest and finds least.
        protocols: of `PROTOCOLS`.
        seed: of the validation split and of the untrained encoder.
        data, split: how the rows name the data.
        batch_size, device: see `embed`.
        progress: show what is done and how long it takes.

    Returns:
        Rows in the order of the encoders; notes on what could not be measured, instead of an error.
    """
    for protocol in protocols:
        check_choice("protocols", protocol, tuple(PROTOCOLS))
    labels, rows, notes = _common_labels(train, test)
    if labels is None or rows is None:
        return Results([], notes)
    classes = int(labels[0].max()) + 1
    found = []
    everyone = _with_baselines(encoders, seed, notes)
    if raw is not None:
        everyone["prepared"] = raw_pixels
    for name, encoder in everyone.items():
        features = [
            embed(
                encoder,
                images,
                prepare=raw if raw is not None and name == "raw" else prepare,
                batch_size=batch_size,
                device=device,
                rows=part,
                progress=progress and f"{name}: {what}",
            )
            for images, part, what in ((train, rows[0], "training part"), (test, rows[1], f"{split} part"))
        ]
        broken = sum(int((~h.isfinite().all(1)).sum()) for h in features)
        if broken:
            notes.append(f"{name}: the embeddings of {broken} images are not finite, so nothing was measured on them")
            continue
        for protocol in protocols if name != "prepared" or raw is None else {"knn"} & set(protocols):
            with Console().status(escape(f"{name}: {protocol}")) if progress else nullcontext():
                estimate = PROTOCOLS[protocol](features[0], labels[0], features[1], labels[1], classes, seed)
            found.append(Row(name, protocol, "accuracy", *estimate[:3], split, data, estimate.n))
    return Results(found, notes)


def raw_pixels(x: Tensor) -> Tensor:
    """(B, 3, S, S) prepared images to (B, F) pixels, averaged down to at most 32 × 32; else flattened."""
    if x.ndim == 4 and max(x.shape[2:]) > _RAW_SIDE:
        x = F.adaptive_avg_pool2d(x, (min(x.shape[2], _RAW_SIDE), min(x.shape[3], _RAW_SIDE)))
    return x.flatten(1).float()


def untrained_copy(encoder: nn.Module, *, seed: int) -> nn.Module | None:
    """A copy with every parameter drawn anew, as its modules' `reset_parameters` do, or None where one has none.

    This is torch's default initialisation, which may differ from the architecture's own: give "untrained" to
    `evaluate` to measure that.
    """
    fresh = copy.deepcopy(encoder)
    cuda = sorted({p.device.index or 0 for p in fresh.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        for module in fresh.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            elif next(module.parameters(recurse=False), None) is not None:
                return None
    return fresh


def _with_baselines(encoders: Mapping[str, Encoder], seed: int, notes: list[str]) -> dict[str, Encoder]:
    everyone = dict(encoders)
    if "untrained" not in everyone:
        trained = everyone.get("trained")
        fresh = untrained_copy(trained, seed=seed) if isinstance(trained, nn.Module) else None
        if fresh is None:
            notes.append('no untrained encoder to compare with: give one by the name "untrained"')
        else:
            everyone["untrained"] = fresh
    everyone.setdefault("raw", raw_pixels)
    return everyone


_Pair = tuple[Tensor, Tensor]  # of the training part, of the test part


def _common_labels(train: LabelledImages, test: LabelledImages) -> tuple[_Pair | None, _Pair | None, list[str]]:
    """The labels that count, as the training part numbers them, the images that have them, and what was left out."""
    notes: list[str] = []
    for images, what in ((train, "training"), (test, "test")):
        if images.labels is None or not bool((images.labels >= 0).any()):
            return None, None, [f"the {what} part has no labels: k-NN and linear probe were not measured"]
    assert train.labels is not None and test.labels is not None
    labels, test_labels = train.labels.cpu().long(), test.labels.cpu().long()
    if train.classes is not None and test.classes is not None and list(train.classes) != list(test.classes):
        numbers = {name: number for number, name in enumerate(train.classes)}
        renumber = torch.tensor([numbers.get(name, -1) for name in test.classes])
        test_labels = torch.where(test_labels >= 0, renumber[test_labels.clamp_min(0)], -1)
    known = torch.isin(test_labels, labels[labels >= 0].unique())
    parts = (labels >= 0).nonzero()[:, 0], (known & (test_labels >= 0)).nonzero()[:, 0]
    for part, images, what in (
        (parts[0], train, "training images without a label"),
        (parts[1], test, "test images without a label, or of a class without training images,"),
    ):
        if len(part) < len(images):
            notes.append(f"{len(images) - len(part)} of {len(images)} {what} were left out")
    if len(parts[1]) == 0:
        return None, None, ["no test image has a class that the training part has: nothing was measured"]
    return (labels[parts[0]], test_labels[parts[1]]), parts, notes
