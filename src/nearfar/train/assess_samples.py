"""The evaluation of an encoder by name on its own kind of data, which its modality opens, prepares and knows raw."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from nearfar.config import ProtocolConfig, ReadConfig, TrainConfig, build
from nearfar.data import Dataset, has_splits
from nearfar.evaluate import Results, calibrated, evaluate
from nearfar.evaluate.linear import stratified_split
from nearfar.evaluate.parts import HELD_OUT, named
from nearfar.export.model import CARD, Model
from nearfar.modalities import Modality, modality_of
from nearfar.train.encoders import untrained


def assess_samples(
    model: Model,
    spec: str,
    *,
    data: str | None,
    test: str | None,
    protocols: Sequence[str],
    seed: int,
    seeds: int,
    settings: ProtocolConfig,
    sources: ReadConfig | None,
    batch_size: int,
    console: Console,
    finished: Callable[[str, Results], None],
) -> Results:
    """Measure an encoder beside raw samples and its untrained self; arguments as `assess` has them."""
    config: TrainConfig = build(TrainConfig, model.card["config"], str(Path(spec) / CARD))
    if data is None:
        data, test = config.data, test or config.sources.test
    elif sources is not None and sources != ReadConfig():
        config = replace(config, sources=replace(config.sources, **vars(sources)))
    modality = modality_of(config)
    train, tested, split, notes = open_sample_parts(modality, data, test, seed=seed)
    if data == config.data and split == "held-out":
        notes.append("the encoder was trained on these samples, without their labels")
    encoders: dict[str, Callable[[Tensor], Tensor]] = {"trained": model.eval()}
    if (baseline := modality.baseline(train, tested)) is not None:
        encoders["raw"] = baseline
    if (fresh := untrained(spec, device=next(model.parameters()).device)) is not None:
        encoders["untrained"] = calibrated(fresh, train, modality.preparation)
    return evaluate(
        encoders,
        train,
        tested,
        prepare=modality.preparation,
        raw=modality.raw,
        protocols=protocols,
        seed=seed,
        seeds=seeds,
        settings=settings,
        data=named(data, test),
        split=split,
        batch_size=batch_size,
        progress=console.is_terminal,
        known=notes,
        origins={"trained": spec, "untrained": f"{spec}, as it was first drawn"},
        finished=finished,
    )


def open_sample_parts(
    modality: Modality, data: str, test: str | None, *, seed: int
) -> tuple[Dataset, Dataset, str, list[str]]:
    """Training part, test part, the name of the latter, notes.

    Data with splits of their own keep them; of anything else a fifth of each class is held out, drawn by the seed.
    """
    if test is not None:
        return modality.open(data), modality.open(test, split="test" if has_splits(test) else None), "test", []
    if has_splits(data):
        return modality.open(data, split="train"), modality.open(data, split="test"), "test", []
    everything = modality.open(data)
    labels = everything.labels if everything.labels is not None else torch.zeros(len(everything), dtype=torch.long)
    rest, held = stratified_split(labels, share=HELD_OUT, seed=seed)
    if not len(held):
        raise ValueError(f"{data} has {len(everything)} samples, too few to hold some out; give others as --test")
    note = f"{data} has no split of its own: {len(held)} samples, a fifth of each class, were held out by seed {seed}"
    return everything.subset(rest), everything.subset(held), "held-out", [note]
