"""The split of a run is stored: neither other settings of reading nor changed data put training samples to the test."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearfar
from nearfar.evaluation.evaluate import Evaluation
from tests.evaluation.test_own_split import IMAGES, TEXTS, image_table_with_splits, pictures, sentences, table, trained
from tests.support.facts import tells


class Trained:
    """A run, and the names of the samples of its parts."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            run, _ = trained(folder, settings, patch)
        self.folder = folder / "run"
        self.train = set(run.setup.train.names)
        self.evaluated = [] if run.setup.splits.evaluated is None else list(run.setup.splits.evaluated[0].names)

    def evaluation(self, data: Any = None, *, loaded: bool = False, **options: Any) -> Evaluation:
        encoder = nearfar.load(self.folder) if loaded else self.folder
        return Evaluation(encoder, data, protocols=["knn"], **options)


def names_tested(evaluation: Evaluation) -> list[str]:
    assert evaluation.splits.evaluated is not None
    return list(evaluation.splits.evaluated[0].names)


def told(evaluation: Evaluation, words: str) -> bool:
    return any(tells(note, words) for note in evaluation.splits.notes)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run on a table with a random validation part, and with columns of other labels and of groups."""
    folder = tmp_path_factory.mktemp("listed")
    rows = [(path, kind, "xy"[row % 2] if row % 4 else "", f"g{row // 6}")
            for row, (path, kind) in enumerate(pictures(folder, 120))]  # fmt: skip
    data = table(folder / "images.csv", ("path", "label", "other", "block"), rows)
    return Trained(folder, {**IMAGES, "data": data})


@pytest.mark.parametrize("flags", [{"group_column": "block"}, {"label_column": "other"}, {"labels": True}])
@pytest.mark.parametrize("loaded", [False, True])
def test_reading_flags_keep_the_same_samples_apart(listed: Trained, flags: dict[str, Any], loaded: bool) -> None:
    evaluation = listed.evaluation(flags, loaded=loaded)
    assert names_tested(evaluation) == listed.evaluated
    assert set(evaluation.splits.train.names) == listed.train
    assert not evaluation.splits.notes


@pytest.fixture
def grown(tmp_path: Path) -> Iterator[Trained]:
    """A run on a folder that has got six more files since, and lost one of the training part."""
    pictures(tmp_path / "photos", 100)
    run = Trained(tmp_path, {**IMAGES, "data": {"path": str(tmp_path / "photos"), "labels": True}})
    pictures(tmp_path / "photos", 6, first=500)
    (tmp_path / "photos" / min(run.train)).unlink()
    yield run


def test_changed_data_are_split_as_they_were(grown: Trained) -> None:
    lost = min(grown.train)
    for loaded in (False, True):
        for flags in (None, {"stored_size": 24}):
            evaluation = grown.evaluation(flags, loaded=loaded)
            assert names_tested(evaluation) == grown.evaluated
            assert set(evaluation.splits.train.names) == grown.train - {lost}
            assert told(evaluation, "changed 6 left 1 gone")
    photos = grown.folder.parent / "photos"
    other = grown.evaluation(test=str(photos))
    assert set(other.splits.train.names) == grown.train - {lost}
    assert told(other, "changed 6 left 1 gone") and told(other, "trained some images (89 of 105)")


def test_a_row_that_moved_from_the_training_to_the_test_part_is_left_out(tmp_path: Path) -> None:
    run = Trained(tmp_path, image_table_with_splits(tmp_path))
    file = tmp_path / "images.csv"
    file.write_text(file.read_text().replace("train", "test", 5))
    evaluation = run.evaluation()
    assert names_tested(evaluation) == run.evaluated and not set(names_tested(evaluation)) & run.train
    assert told(evaluation, "changed 5")
    moved = run.evaluation(test=f"{file}:split=test")  # what the user asks for, with a note
    assert told(moved, "trained some images (5 of 13)")


def test_changed_sentences_are_found_by_their_text(tmp_path: Path) -> None:
    said: Any = sentences(0, 110)
    data = table(tmp_path / "said.csv", ("text", "label"), said)
    run = Trained(tmp_path, {**TEXTS, "data": data})
    before = {said[int(name) - 1][0] for name in run.evaluated}
    table(tmp_path / "said.csv", ("text", "label"), [("how do i begin", "reset"), *said])  # all row numbers shift
    evaluation = run.evaluation()
    assert evaluation.splits.evaluated is not None
    assert set(evaluation.splits.evaluated[0].texts or ()) == before
    assert told(evaluation, "changed 1 left")


def test_without_names_a_note_says_that_the_split_may_be_another(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (100, 12, 12, 3), dtype=np.uint8)
    data, labels = tmp_path / "images.npz", np.arange(100) % 2
    np.savez(data, x=images, y=labels)
    run = Trained(tmp_path, {**IMAGES, "data": str(data)})
    assert not (run.folder / "splits.npz").exists()
    assert names_tested(run.evaluation({"group_column": ""})) == run.evaluated  # the data are the same
    np.savez(data, x=np.concatenate([images[:1], images]), y=np.append(labels, 0))
    np.savez(tmp_path / "other.npz", x=images[:20], y=labels[:20])
    for loaded in (False, True):
        for options in ({}, {"data": {"labels": True}}, {"test": str(tmp_path / "other.npz")}):
            assert told(run.evaluation(loaded=loaded, **options), "changed train 90 91")


def test_the_card_tells_of_changes_if_the_files_of_the_run_are_gone(grown: Trained) -> None:
    (grown.folder / "splits.npz").write_bytes(b"PK")
    assert told(grown.evaluation(), "splits.npz") and told(grown.evaluation(), "changed train 90")
    (grown.folder / "splits.json").write_text("{")
    assert told(grown.evaluation(), "splits.json") and told(grown.evaluation(), "changed train 90")
    (grown.folder / "splits.json").unlink()
    assert told(grown.evaluation(loaded=True), "changed train 90")


def test_each_encoder_is_told_what_it_was_trained_on(listed: Trained, tmp_path: Path) -> None:
    """Another seed validates on other samples, so it has learned from some of those that are tested on."""
    other = Trained(tmp_path, {**IMAGES, "data": str(listed.folder.parent / "images.csv"), "seed": 5})
    seen = len(set(listed.evaluated) & other.train)
    shutil.move(other.folder, tmp_path / "other")
    evaluation = listed.evaluation(against=[tmp_path / "other"])
    assert [note for note in evaluation.splits.notes if "trained on" in note] == [
        note for note in evaluation.splits.notes if tells(note, f"other: trained some images ({seen} of 12)")
    ]
    assert told(evaluation, "other: trained")
    assert json.loads((tmp_path / "other" / "splits.json").read_text())["parts"]["train"]["samples"] == 108
