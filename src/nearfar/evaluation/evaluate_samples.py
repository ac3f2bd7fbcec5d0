"""The evaluation of an encoder of sounds or series by name: its modality opens, prepares, varies and knows them raw."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from nearfar.config import DataConfig, ProtocolConfig, ReadConfig
from nearfar.data.sources import TEST_FOLDERS, is_folder, own_parts
from nearfar.evaluation.baselines import calibrated
from nearfar.evaluation.leakage import seen_before
from nearfar.evaluation.linear import stratified_split
from nearfar.evaluation.results import Results
from nearfar.evaluation.runner import evaluate
from nearfar.evaluation.splits import HELD_OUT, Parts, named
from nearfar.evaluation.validation import check_suitable
from nearfar.modalities.image.data.opening import has_splits
from nearfar.modalities.series.modality import Series
from nearfar.modalities.sound.modality import Sounds
from nearfar.model.encoder import SeriesModel, SoundModel
from nearfar.model.open import untrained


def assess_samples(
    model: SoundModel | SeriesModel,
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
    seen: Callable[..., None],
) -> Results:
    """Measure an encoder beside its raw samples and its untrained self; arguments as `assess` has them."""
    config = model.modality.config
    own = data is None
    if data is None:
        data, test = config.data, test or config.sources.test
    given = {name: value for name, value in vars(sources or ReadConfig()).items() if value != getattr(_NONE, name)}
    reading, notes = _kept_held_out(replace(config.sources, **given) if own else DataConfig(**given))
    modality = model.modality.reading(_complete(reading, data))
    parts = open_sample_parts(modality, data, test, seed=seed)
    check_suitable(protocols, [model], parts.train, parts.test, named(data, test))
    parts.notes.extend(notes)
    parts.notes.extend(seen_before(config, data, test, parts.split, what="samples"))
    encoders: dict[str, Callable[[Tensor], Tensor]] = {
        "trained": model,
        "raw": modality.baseline(parts.train, parts.test),
    }
    fresh = untrained(spec, device=next(model.parameters()).device)
    if fresh is not None:
        encoders["untrained"] = calibrated(fresh, parts.train, model.prepare)
    results = evaluate(
        encoders,
        parts.train,
        parts.test,
        prepare=model.prepare,
        raw=modality.raw,
        augment=modality.varied,
        protocols=protocols,
        seed=seed,
        seeds=seeds,
        settings=settings,
        data=named(data if own and not given else _with_labels(data, reading), test),
        split=parts.split,
        batch_size=batch_size,
        progress=console.is_terminal,
        known=parts.notes,
        origins={"trained": spec, "untrained": f"{spec}, as it was first drawn", "raw": modality.raw_is},
        finished=finished,
    )
    if results.rows:
        seen(model, parts.test, model.prepare, modality.pictures, named(data, test), parts.split)
    return results


_NONE = ReadConfig()  # what is read where nothing is said


def _with_labels(data: str, sources: DataConfig) -> str:
    """The data's name, with what the labels are where that was asked for: other labels are other numbers."""
    said = sources.pattern or (f"column {sources.label_column}" if sources.label_column else None)
    return f"{data} by {said}" if said else data


def _kept_held_out(sources: DataConfig) -> tuple[DataConfig, list[str]]:
    """Without a part held out by a name that the pattern no longer has, which is noted."""
    held = sources.held_out
    if held is None or sources.pattern is None or f"{{{held.partition('=')[0]}}}" in sources.pattern:
        return sources, []
    note = f"the pattern {sources.pattern} has nothing called {held.partition('=')[0]!r}, so {held} are not held out"
    return replace(sources, held_out=None), [note]


def _complete(found: DataConfig, data: str) -> DataConfig:
    """With the sub-folders of a folder as labels, where nothing else says what they are."""
    folder = Path(data).expanduser()
    if found.labels is None and found.pattern is None and folder.is_dir():
        inner = next((folder / split for split in ("train", *TEST_FOLDERS) if (folder / split).is_dir()), folder)
        found = replace(found, labels=any(is_folder(entry) for entry in inner.iterdir()))
    return found


def open_sample_parts(modality: Sounds | Series, data: str, test: str | None, *, seed: int) -> Parts:
    """Training part, test part, the name of the latter, notes.

    Built-in data, a folder with train/ and test/, NAME_TRAIN beside NAME_TEST, and data of which some are held out
    (`sources.held_out`) have parts of their own; of anything else a fifth of each class is held out, drawn by the seed.
    """
    sources = modality.config.sources
    own: tuple[str, str] | None = None
    if sources.held_out is not None:
        assert sources.kept is not None
        own = sources.kept, sources.held_out
    elif has_splits(data):
        own = "train", "test"
    else:
        own = own_parts(data)
    train = modality.open(data, split=own and own[0])
    if test is not None:
        return Parts(train, modality.open(test, split="test", classes=train.classes), "test", [])
    if own is not None:
        split = "test" if sources.held_out is not None else own[1]
        return Parts(train, modality.open(data, split=own[1], classes=train.classes), split, [])
    labels = train.labels if train.labels is not None else torch.zeros(len(train), dtype=torch.long)
    rest, held = stratified_split(labels, share=HELD_OUT, seed=seed)
    if len(held) == 0:
        raise ValueError(f"{data} has {len(train)} samples, too few to hold some out; give others as test")
    fifth = "a fifth of each class" if train.labels is not None else "a fifth"
    note = f"{data} has no split of its own: {len(held)} samples, {fifth}, were held out by seed {seed}"
    return Parts(train.subset(rest), train.subset(held), "held-out", [note])
