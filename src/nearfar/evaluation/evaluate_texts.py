"""The evaluation of a text encoder by name: sentences with labels, or pairs of them with scores."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from nearfar.config import ProtocolConfig, ReadConfig
from nearfar.data.sources import TEST_FOLDERS
from nearfar.evaluation.linear import stratified_split
from nearfar.evaluation.results import Results
from nearfar.evaluation.runner import evaluate
from nearfar.evaluation.splits import HELD_OUT, named
from nearfar.evaluation.validation import check_suitable
from nearfar.modalities.text.data import TextDataset, open_texts
from nearfar.modalities.text.modality import Tokens, Words, as_they_are
from nearfar.model.encoder import TextModel
from nearfar.model.open import untrained


def assess_texts(
    model: TextModel,
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
    """Measure a text encoder beside tf-idf and its untrained self; arguments as `assess` has them."""
    if data is None:
        raise ValueError("a text encoder is measured on --data of texts, beside tf-idf and its untrained self")
    train, tested, split, notes = open_text_parts(data, test, sources or ReadConfig(), seed=seed)
    raw = Words(train, tested, model.tokenizer)
    encoders: dict[str, Callable[[Tensor], Tensor]] = {"trained": model, "raw": raw}
    fresh = untrained(spec, device=next(model.parameters()).device)
    if fresh is not None:
        encoders["untrained"] = fresh.eval()
    parts = [Tokens(part, model.tokenizer.encode(part.texts).to(torch.int32)) for part in (train, tested)]
    check_suitable(protocols, [model], parts[0], parts[1], named(data, test))
    results = evaluate(
        encoders,
        *parts,
        prepare=as_they_are,
        protocols=protocols,
        seed=seed,
        seeds=seeds,
        settings=settings,
        data=named(data, test),
        split=split,
        batch_size=batch_size,
        progress=console.is_terminal,
        known=notes,
        origins={
            "trained": spec,
            "untrained": f"{spec}, as it was first drawn",
            "raw": "tf-idf of all words, idf of all sentences compared",
        },
        finished=finished,
    )
    if results.rows:
        seen(model, parts[1], as_they_are, lambda samples, side: None, named(data, test), split)
    return results


def open_text_parts(
    data: str, test: str | None, sources: ReadConfig, *, seed: int
) -> tuple[TextDataset, TextDataset, str, list[str]]:
    """Training part, test part, the name of the latter, notes.

    A folder with files train and test, or a table with such splits, has parts of its own; of anything else a fifth of
    each class is held out, drawn by the seed.
    """

    def opened(spec: str, split: str | None, classes: list[str] | None = None) -> TextDataset:
        return open_texts(
            spec,
            split=split,
            text_column=sources.text_column,
            partner_column=sources.partner_column,
            negative_column=sources.negative_column,
            label_column=sources.label_column,
            classes=classes,
            strict=sources.strict,
        )

    if test is not None:
        train = opened(data, "train" if Path(data).is_dir() else None)
        return train, opened(test, None, train.classes), "test", []
    if Path(data).expanduser().is_dir():
        for split in TEST_FOLDERS:
            if any(Path(data).expanduser().glob(f"{split}.*")):
                train = opened(data, "train")
                return train, opened(data, split, train.classes), split, []
        raise ValueError(f"{data} has no file test, val or validation beside train; give one with --test")
    for split in TEST_FOLDERS:
        with suppress(ValueError):  # where the table has no such split
            train = opened(data, "train")
            return train, opened(data, split, train.classes), split, []
    everything = opened(data, None)
    if everything.scores is not None and everything.labels is None:
        return (
            everything,
            everything,
            "all",
            [f"nothing is fitted: all {len(everything):,} pairs of {data} are compared"],
        )
    labels = everything.labels if everything.labels is not None else torch.zeros(len(everything), dtype=torch.long)
    rest, held = stratified_split(labels, share=HELD_OUT, seed=seed)
    fifth = "a fifth of each class" if everything.labels is not None else "a fifth"
    note = f"{data} has no split of its own: {len(held)} sentences, {fifth}, were held out by seed {seed}"
    return everything.subset(rest), everything.subset(held), "held-out", [note]
