"""What an encoder has seen of the data that it is evaluated on is said beside its numbers."""

from pathlib import Path

import pytest

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig, ReadConfig
from nearfar.evaluation.leakage import training_notes
from tests.support.facts import all_tell, tells

SEEN, PARTLY = "trained on these images, without their labels", "trained on some of these images"


@pytest.mark.parametrize(
    ("learned", "data", "test", "split", "said"),
    [
        ("photos", "photos", None, "held-out", SEEN),
        ("photos", "photos/", None, "held-out", SEEN),
        ("photos", "./photos/cats", None, "held-out", SEEN),
        ("photos/cats", "photos", None, "held-out", PARTLY),
        ("photos", "other", None, "held-out", ""),
        ("photos", "other", "photos", "test", SEEN),
        ("labelled", "labelled", None, "test", ""),  # it is trained on labelled/train
        ("labelled", "labelled/train", None, "held-out", SEEN),
        ("labelled/train", "labelled", None, "test", ""),
        ("labelled/train", "labelled", "labelled/train", "test", SEEN),
        ("other", "photos", "labelled", "test", ""),
        ("glyphs:64", "glyphs:64", None, "test", ""),
        ("waves", "waves", None, "held-out", SEEN),
        ("t.csv:who=a", "t.csv:who=a", None, "held-out", SEEN),
        ("t.csv:who=a", "t.csv:who=b", None, "held-out", ""),
    ],
)
def test_it_is_told_by_place(
    learned: str, data: str, test: str | None, split: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("photos/cats", "other", "labelled/train", "labelled/test"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "t.csv").touch()
    monkeypatch.chdir(tmp_path)
    notes = training_notes(TrainConfig(data=learned), data, test, split, noun="images")
    assert (len(notes) == 1 and tells(notes[0], said)) if said else notes == []


def test_labels_that_were_learned_from_are_named() -> None:
    supcon = TrainConfig(data="photos", method="supcon")
    assert all_tell(training_notes(supcon, "other", None, "held-out"), ["supcon labels photos"])
    assert tells(training_notes(supcon, "photos", None, "held-out")[0], "label")
    assert tells(training_notes(supcon, None, None, "test")[0], "supcon labels photos")


def test_other_rows_than_those_held_out_in_training_are_told() -> None:
    run = TrainConfig(data=DataConfig("words.csv", held_out="speaker=theo"))
    assert training_notes(run, None, None, "test") == []
    assert training_notes(run, "words.csv", None, "test", reading=ReadConfig(held_out="speaker=theo")) == []
    for split, held_out in (("held-out", None), ("test", "speaker=ann")):
        (note,) = training_notes(run, "words.csv", None, split, reading=ReadConfig(held_out=held_out))
        assert tells(note, "trained some samples")


@pytest.mark.parametrize(
    ("learned", "data", "test", "split", "said"),
    [
        ("listed.csv", "photos", None, "held-out", SEEN),
        ("listed.csv", "everything", None, "held-out", PARTLY),
        ("listed.csv", "other", None, "held-out", ""),
        ("listed.csv", "other", "photos", "test", SEEN),
        ("listed.csv", "again.csv", None, "held-out", PARTLY),
        ("photos", "listed.csv", None, "held-out", SEEN),
        ("other", "listed.csv", None, "held-out", ""),
        ("parts.csv", "photos/a", None, "held-out", SEEN),  # rows of the split "train"
        ("parts.csv", "photos/b", None, "held-out", ""),  # rows of the split "test"
        ("photos/a", "parts.csv", None, "test", ""),
        ("photos/b", "parts.csv", None, "test", SEEN),
        ("listed.csv:kind=a", "photos/b", None, "held-out", ""),
        ("texts.csv", "photos", None, "held-out", ""),
    ],
)
def test_files_that_a_table_lists_are_compared(
    learned: str, data: str, test: str | None, split: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("photos/a/1.png", "photos/b/2.png", "other/a/3.png"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "everything").mkdir()
    for name in ("photos", "other"):
        (tmp_path / "everything" / name).symlink_to(tmp_path / name)
    for name, rows in {
        "listed.csv": "path,kind\nphotos/a/1.png,a\nphotos/b/2.png,b\n",
        "again.csv": "path,kind\nphotos/a/1.png,a\nother/a/3.png,b\n",
        "parts.csv": "path,split\nphotos/a/1.png,train\nphotos/b/2.png,test\n",
        "texts.csv": "sentence\nphotos/a/1.png\n",
    }.items():
        (tmp_path / name).write_text(rows)
    monkeypatch.chdir(tmp_path)
    notes = training_notes(TrainConfig(data=learned, modality="image"), data, test, split, noun="images")
    assert (len(notes) == 1 and tells(notes[0], said)) if said else notes == []
