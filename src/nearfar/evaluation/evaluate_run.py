"""From encoders and data to numbers: the one path, for every modality.

The end of a run, `nearfar evaluate`, `nearfar.evaluate` and the recipes all go through `evaluate_run`.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import torch

from nearfar.evaluation.baselines import PreparedValues, RawValues, calibrated
from nearfar.evaluation.embedding import Prepare
from nearfar.evaluation.embedding_transform import EmbeddingSetting, choose_transform
from nearfar.evaluation.measure import Finished, TestData, measure
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.results import Results
from nearfar.evaluation.task import Compute, Embedder
from nearfar.modalities.base import Modality, Splits
from nearfar.modalities.baseline import Baseline
from nearfar.model.encoder import Encoder
from nearfar.nn.whitening import EmbeddingTransform


def evaluate_run(
    encoders: Mapping[str, Encoder],
    splits: Splits,
    protocols: Sequence[str],
    settings: ProtocolConfig | None = None,
    *,
    data: str,
    untrained: Encoder | None = None,
    seeds: Sequence[int] = (0,),
    origins: Mapping[str, str] | None = None,
    compute: Compute | None = None,
    finished: Finished | None = None,
) -> Results:
    """Measure encoders on held-out data, beside the untrained encoder and the raw samples.

    Args:
        encoders: by their names in the result rows; the first is the one in question.
        splits: the test part is measured on, or the validation part if there is none; labels are of `gallery`.
        protocols, settings, seeds, compute, finished: see `measure`.
        data: name of the data in the result rows.
        untrained: the first encoder as it was before training. BatchNorm statistics are calibrated here, unless the
            run began with given weights, and its features transformed by the same rule as those of the first encoder.
        origins: where the encoders come from, by name, for the record.

    Returns:
        Rows in the order of the encoders, then "untrained", "random" if the run began with given weights, "raw",
        "prepared" if the encoder's preparation does more than bring samples into form, and the modality's further
        baselines; comparisons with all of these on the same samples; notes on what could not be measured, instead of an
        error.
    """
    if splits.evaluated is None:
        few = f"nothing is held out of {len(splits.train):,} samples; give other ones with --data.test"
        return Results([], [few])
    (test, split), settings, origins = splits.evaluated, settings or ProtocolConfig(), origins or {}
    (name, first), boxed = next(iter(encoders.items())), splits.train.boxed
    embedders = [as_embedder(each, encoder, boxed, origins.get(each, "")) for each, encoder in encoders.items()]
    notes = list(splits.notes)
    if untrained is None:
        notes.append("no comparison with the untrained encoder: its starting weights are not known")
    else:
        prepare, frozen = embedders[0].prepare, settings.detection.frozen
        start = untrained.card.get("start")  # weights that the run was given, with statistics of their own
        at_once = settings.detection.batch_size if boxed else 256
        if start is None and (not boxed or frozen):  # else its statistics are learned with the detector
            calibrated(untrained, splits.gallery, prepare, batch_size=at_once)
        if not boxed:
            untrained.transform = _same_rule(first, untrained, splits)
        drawn = f"{origins.get(name, name)}, as it was first drawn"
        origin = drawn if start is None else f"the start: {start}"
        own = as_embedder("untrained", untrained, boxed, origin)
        embedders.append(replace(own, role="start", from_scratch=start is None))
        if start is not None:
            random = drawn_anew(untrained)
            if not boxed or frozen:
                calibrated(random, splits.gallery, prepare, batch_size=at_once)
            if not boxed:
                random.transform = _same_rule(first, random, splits)
            own = as_embedder("random", random, boxed, "the same network with weights drawn at random")
            embedders.append(replace(own, role="baseline", from_scratch=True))
    if not boxed:
        embedders += _baselines(first.modality, splits, embedders[0].prepare)
    where = TestData(splits.gallery, test, data, split, notes, first.modality.vary)
    return measure(embedders, where, protocols, settings, seeds=seeds, compute=compute, finished=finished)


def drawn_anew(start: Encoder) -> Encoder:
    """The network of an encoder that began with given weights, with weights drawn at random instead."""
    modality = start.modality
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(modality.config.seed)
        network = modality.trained_encoder(untrained=True)
    return Encoder(network, modality, {**start.card, "start": None}).to(start.device).eval()


def _same_rule(encoder: Encoder, untrained: Encoder, splits: Splits) -> EmbeddingTransform | None:
    """The untrained encoder's own transform, by the same rule: what is gained must not be the transform's alone."""
    stated: Any = encoder.card.get("embedding")
    setting: Any = stated.get("setting") if isinstance(stated, dict) else None
    known: Any = setting if setting in get_args(EmbeddingSetting) else "plain"
    transform, _ = choose_transform(untrained, splits.train, splits.validation, known)
    return None if transform is None else transform.to(untrained.device)


def as_embedder(name: str, encoder: Encoder, boxed: bool = False, origin: str = "") -> Embedder:
    """An encoder as protocols see it; for data with boxes, one that keeps the size of the images."""
    transform = None if encoder.transform is None else copy.deepcopy(encoder.transform).cpu()
    return Embedder(
        name,
        encoder.without_transform(),  # what is trained further is the network
        encoder.modality.prepare_unresized if boxed else encoder.prepare,
        origin,
        transform,
        embed_texts=partial(encoder.encode, kind="text") if encoder.reads_texts else None,
        frames=encoder.frames if encoder.has_frames else None,
        logit_scale=encoder.logit_scale,
    )


def _baselines(modality: Modality, splits: Splits, prepare: Prepare) -> list[Embedder]:
    """The baseline "raw"; "prepared" for what raw values tell after the encoder's own preparation; further ones."""
    assert splits.evaluated is not None
    own, raw_prepare = modality.baseline(splits.gallery, splits.evaluated[0]), modality.raw_prepare
    baselines = [baseline_embedder("raw", own or RawValues(), raw_prepare or prepare, modality.baseline_name)]
    if own is None and raw_prepare is not None:
        baselines.append(baseline_embedder("prepared", PreparedValues(), prepare, "the encoder's input"))
    for name, baseline in modality.further_baselines().items():
        as_raw = baseline.prepare or raw_prepare or prepare
        baselines.append(baseline_embedder(name, baseline, as_raw, baseline.origin))
    return baselines


def baseline_embedder(name: str, baseline: Baseline, prepare: Prepare, origin: str = "") -> Embedder:
    """A baseline as protocols see it."""
    return Embedder(
        name,
        baseline,
        prepare,
        origin,
        role="baseline",
        embed_texts=baseline.embed_texts,
        frames=baseline.frames,
        sparse_rows=baseline.sparse_rows,
        cosines=baseline.cosines,
        protocols=baseline.protocols,
    )
