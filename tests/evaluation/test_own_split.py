"""`evaluate RUN` measures on the run's own held-out samples: the same rows as at its end, and no training sample."""

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import nearfar
from nearfar.config import TrainConfig, completed
from nearfar.data.dataset import Dataset
from nearfar.evaluation.evaluate import Evaluation
from nearfar.evaluation.results import Results
from nearfar.settings import build
from nearfar.training.run import Run
from tests.support.facts import tells
from tests.support.sounds import RATE, recordings
from tests.training.runs import QUIET

Settings = dict[str, Any]
QUICK = {"epochs": 1, "batch_size": 16}
IMAGES = {**QUICK, "modality": "image", "backbone": "micro"}
SOUNDS = {**QUICK, "backbone": "audio-micro", "sound": {"sample_rate": RATE}}
BY_NAME = {"pattern": "{label}_{speaker}_{take}"}
TEXTS = {**QUICK, "method": "simcse", "backbone": "text-micro", "text": {"vocab_size": 300}}


def pictures(folder: Path, count: int, first: int = 0) -> list[tuple[str, str]]:
    """Dark and bright images in two sub-folders; path and class of each."""
    made = []
    for number in range(first, first + count):
        label = ("dark", "bright")[number % 2]
        pixels = np.random.default_rng(number).integers(20 + 150 * (number % 2), 255, (12, 12, 3), dtype=np.uint8)
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / label / f"{number}.png")
        made.append((f"{label}/{number}.png", label))
    return made


def table(file: Path, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([header, *rows])
    return str(file)


def image_table(folder: Path) -> Settings:
    made = [(path, label, "b" if row % 5 == 0 else "a") for row, (path, label) in enumerate(pictures(folder, 40))]
    data = table(folder / "images.csv", ("path", "label", "vendor"), made)
    return {**IMAGES, "data": {"path": data, "held_out": "vendor=b"}}


def image_table_with_splits(folder: Path) -> Settings:
    made = [
        (path, label, "test" if row % 5 == 0 else "train") for row, (path, label) in enumerate(pictures(folder, 40))
    ]
    return {**IMAGES, "data": table(folder / "images.csv", ("path", "label", "split"), made)}


def image_folders(folder: Path) -> Settings:
    pictures(folder / "photos" / "train", 40)
    pictures(folder / "photos" / "val", 10, first=100)
    return {**IMAGES, "data": {"path": str(folder / "photos"), "labels": True}}


def image_validation(folder: Path) -> Settings:
    pictures(folder / "photos", 100)
    return {**IMAGES, "data": {"path": str(folder / "photos"), "labels": True}, "seed": 3}


def image_other_test(folder: Path) -> Settings:
    pictures(folder / "photos", 100)
    pictures(folder / "others", 10, first=200)
    test = str(folder / "others")
    return {**IMAGES, "data": {"path": str(folder / "photos"), "labels": True, "test": test}}


def glyphs(folder: Path) -> Settings:
    return {**IMAGES, "data": "glyphs:60"}


def captioned(folder: Path) -> Settings:
    made = [(path, f"a {label} picture, number {row}", label, "b" if row % 5 == 0 else "a")
            for row, (path, label) in enumerate(pictures(folder, 40))]  # fmt: skip
    data = table(folder / "images.csv", ("path", "caption", "label", "vendor"), made)
    text = {"encoder": "text-micro", "vocab_size": 300, "embed_dim": 16}
    return {**QUICK, "method": "clip", "backbone": "micro", "text": text,
            "data": {"path": data, "held_out": "vendor=b"}}  # fmt: skip


def sounds_by_speaker(folder: Path) -> Settings:
    data = str(recordings(folder / "words"))
    return {**SOUNDS, "data": {"path": data, **BY_NAME, "held_out": "speaker=bob"}}


def sound_folders(folder: Path) -> Settings:
    import soundfile

    for name, takes in (("train", 4), ("test", 2)):
        recordings(folder / "words" / name, takes=takes)
    for file in (folder / "words" / "test").iterdir():  # other takes, not copies
        soundfile.write(file, 0.8 * soundfile.read(file)[0], RATE)
    return {**SOUNDS, "data": {"path": str(folder / "words"), **BY_NAME}}


def sound_validation(folder: Path) -> Settings:
    return {**SOUNDS, "data": {"path": str(recordings(folder / "words", takes=10)), **BY_NAME}}


def series(folder: Path, parts: tuple[str, ...]) -> Settings:
    for number, part in enumerate(parts):
        labels, chance = np.arange(90) % 2, np.random.default_rng(number)
        steps = np.sin(np.linspace(0, 6, 32) * (1 + labels[:, None])) + 0.1 * chance.standard_normal((90, 32))
        np.savetxt(folder / f"Toy{part}.tsv", np.column_stack([labels + 1, steps]), fmt="%.4f", delimiter="\t")
    options = {"dim": 8, "hidden": 16}
    return {**QUICK, "modality": "series", "data": str(folder / f"Toy{parts[0]}.tsv"), "options": options}


def series_parts(folder: Path) -> Settings:
    return series(folder, ("_TRAIN", "_TEST"))


def series_validation(folder: Path) -> Settings:
    return series(folder, ("",))


def sentences(first: int, last: int) -> list[tuple[str, str]]:
    verbs, things = ("reset", "find", "order", "return", "paint"), ("phone", "lamp", "boat", "key")
    said = [f"how do i {v} my {t} on day {n}" for n in range(6) for v in verbs for t in things]
    return [(text, text.split()[3]) for text in said[first:last]]


def text_other_test(folder: Path) -> Settings:
    data, test = (
        table(folder / f"{name}.csv", ("text", "label"), sentences(*rows))  # type: ignore[arg-type]
        for name, rows in (("one", (0, 80)), ("two", (80, 110)))
    )
    return {**TEXTS, "data": {"path": data, "test": test}}


def text_parts(folder: Path) -> Settings:
    (folder / "said").mkdir()
    for name, rows in (("train", (0, 80)), ("test", (80, 110))):
        table(folder / "said" / f"{name}.csv", ("text", "label"), sentences(*rows))  # type: ignore[arg-type]
    return {**TEXTS, "data": str(folder / "said"), "modality": "text"}


def text_validation(folder: Path) -> Settings:
    return {**TEXTS, "data": table(folder / "said.csv", ("text", "label"), sentences(0, 110))}  # type: ignore[arg-type]


WAYS: list[tuple[Callable[[Path], Settings], str, int]] = [  # with the name and the size of what is measured on
    (image_table, "test", 8),
    (image_table_with_splits, "test", 8),
    (image_folders, "val", 10),
    (image_validation, "validation", 10),
    (image_other_test, "test", 10),
    (glyphs, "test", 12),
    (captioned, "test", 8),
    (sounds_by_speaker, "test", 12),
    (sound_folders, "test", 18),
    (sound_validation, "validation", 9),
    (series_parts, "test", 90),
    (series_validation, "validation", 9),
    (text_other_test, "test", 30),
    (text_parts, "test", 30),
    (text_validation, "validation", 11),
]


def contents(part: Dataset) -> list[str]:
    """A digest of each sample."""
    rows = [part.fetch(torch.tensor([row])) for row in range(len(part))]
    return [hashlib.sha1(np.ascontiguousarray(row.numpy()).tobytes()).hexdigest() for row in rows]


def trained(folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Results]:
    monkeypatch.setattr("nearfar.report.page.write_report", lambda folder: folder)
    config: TrainConfig = build(TrainConfig, completed(settings), "test")
    run = Run(config, folder / "run", resume=False, console=QUIET)
    results = run.execute()
    assert results is not None and results.rows, results
    return run, results


@pytest.mark.parametrize(("make", "split", "count"), WAYS, ids=[make.__name__ for make, *_ in WAYS])
def test_no_training_sample_is_tested_on_and_the_numbers_are_those_of_the_run(
    make: Callable[[Path], Settings], split: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, at_the_end = trained(tmp_path, make(tmp_path), monkeypatch)
    protocols = run.setup.modality.run_protocols(run.setup.test or run.setup.train)
    evaluation = Evaluation(str(tmp_path / "run"), protocols=protocols)
    assert evaluation.splits.evaluated is not None
    test, name = evaluation.splits.evaluated
    assert (name, len(test)) == (split, count)
    assert not set(contents(test)) & set(contents(run.setup.train))
    later = evaluation.run()
    assert later.rows == at_the_end.rows and later.comparisons == at_the_end.comparisons  # to the last bit
    gallery = len(run.setup.train) + (len(run.setup.validation or ()) if split != "validation" else 0)
    assert {source.training for source in at_the_end.provenance} == {gallery}  # all that is not measured on
    assert later.notes == at_the_end.notes and not any("changed" in note for note in later.notes)
    kept = json.loads((tmp_path / "run" / "splits.json").read_text())["parts"]
    assert kept["train"]["samples"] == len(run.setup.train)
    assert kept["validation" if split == "validation" else "test"]["samples"] == count


def test_other_labels_keep_the_same_samples_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new pattern has no speaker, by which samples were held out: they are found by their names."""
    run, _ = trained(tmp_path, sounds_by_speaker(tmp_path), monkeypatch)
    other = {"pattern": "{word}_{name}_{label}"}
    evaluation = Evaluation(str(tmp_path / "run"), other, protocols=["knn"])
    assert run.setup.test is not None and evaluation.splits.test is not None
    assert list(evaluation.splits.test.names) == list(run.setup.test.names)
    assert not set(contents(evaluation.splits.test)) & set(contents(run.setup.train))
    assert evaluation.splits.test.classes == ["0", "1", "2", "3"]  # the takes
    assert evaluation.data == f"{tmp_path / 'words'} by {{word}}_{{name}}_{{label}}"


def test_the_same_data_by_name_are_told_to_have_been_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = image_table(tmp_path)
    trained(tmp_path, settings, monkeypatch)
    results = nearfar.evaluate(tmp_path / "run", settings["data"]["path"], protocols=["knn"])
    assert any(tells(note, "trained some images") for note in results.notes)
    results = nearfar.evaluate(nearfar.load(tmp_path / "run"), settings["data"], protocols=["knn"])
    assert {row.encoder for row in results.rows} == {"trained", "untrained", "raw", "colour histogram"}
    assert not results.notes
