"""The doctor finds what was planted in a folder, and training heeds its groups."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from nearfar.cli import main
from nearfar.doctor import examine
from nearfar.doctor.summary import summary
from nearfar.modalities.image.data.opening import find_images, open_images
from tests.search.pictures import folder_of, scene
from tests.support.facts import tells


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def altered(picture: Image.Image, how: str) -> Image.Image:
    if how == "compressed":
        content = io.BytesIO()
        picture.save(content, "JPEG", quality=40)
        return Image.open(content).convert("RGB")
    if how == "small":
        return picture.resize((30, 30), Image.Resampling.BILINEAR)
    return ImageEnhance.Contrast(ImageEnhance.Brightness(picture).enhance(1.2)).enhance(0.8)


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """Sixty pictures of two classes, and everything that can be wrong."""
    data = folder_of(tmp_path / "data", 60)
    shutil.copy(data / "class0/0000.png", data / "class0/copy.png")
    for number, how in ((3, "compressed"), (4, "small"), (5, "bright")):
        altered(scene(number), how).save(data / f"class1/{how}.png")  # 4 is of class0: a conflict
    Image.new("RGB", (40, 40), (9, 9, 9)).save(data / "class0/even.png")
    Image.new("RGB", (40, 40), (9, 9, 10)).save(data / "class0/even2.png")
    scene(900, 12).save(data / "class0/tiny.png")
    scene(901).resize((200, 40)).save(data / "class0/long.png")
    whole = (data / "class0/0002.png").read_bytes()
    (data / "class0/cut.png").write_bytes(whole[: len(whole) // 2])
    (data / "class1/empty.jpg").write_bytes(b"")
    return data


def test_everything_planted_is_found_and_nothing_else(
    sick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    test = folder_of(tmp_path / "test", 10, first=500)
    shutil.copy(sick / "class0/0006.png", test / "equal.png")
    altered(scene(7), "compressed").save(test / "near.png")
    assert main(["doctor", str(sick), "--labels", "--test", str(test), "-o", "found"]) == 0
    told = capsys.readouterr().out

    problems = {(row["problem"], row["path"]) for row in rows(tmp_path / "found/problems.csv")}
    assert problems == {
        ("broken", "class0/cut.png"), ("broken", "class1/empty.jpg"), ("tiny", "class0/tiny.png"),
        ("one colour", "class0/even.png"), ("one colour", "class0/even2.png"), ("long", "class0/long.png"),
        ("label conflict", "class0/0004.png"), ("label conflict", "class1/small.png"),
    }  # fmt: skip
    groups: dict[str, set[str]] = {}
    for row in rows(tmp_path / "found/groups.csv"):
        groups.setdefault(row["group"], set()).add(row["path"])
    assert sorted(groups.values(), key=sorted) == [
        {"class0/0000.png", "class0/copy.png"},
        {"class0/0004.png", "class1/small.png"},
        {"class1/0003.png", "class1/compressed.png"},
        {"class1/0005.png", "class1/bright.png"},
    ]
    leaks = {(row["test"], row["train"], row["how"]) for row in rows(tmp_path / "found/leaks.csv")}
    assert leaks == {
        ("equal.png", "class0/0006.png", "equal file"),
        ("near.png", "class1/0007.png", "near-duplicate"),
    }
    report = json.loads((tmp_path / "found/report.json").read_text())
    assert report["summary"] == [line for line in told.splitlines() if line in report["summary"]]
    assert (report["samples"], report["readable"], report["repeated"]) == (70, 68, 4)
    assert tells(told, "2 12 1 test")
    assert tells(told, "1 3 near-duplicates") and tells(told, "2 read")
    assert tells(told, "2 classes 33 (class1) 35 (class0)")


def test_a_healthy_data_set_has_no_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = folder_of(tmp_path / "data", 40), tmp_path / "found"
    out.mkdir()
    (out / "groups.csv").write_text("of an earlier look")
    assert main(["doctor", str(data), "-o", str(out)]) == 0
    assert tells(capsys.readouterr().out, "no duplicates")
    assert [path.name for path in out.iterdir()] == ["report.json"]


def test_small_classes_are_told() -> None:
    found = examine(find_images("glyphs:60"), progress=False)
    assert len(found.classes) > 20 and any(tells(line, "fewer 5") for line in summary(found))


def test_arrays_are_examined_too(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 20, 20, 3), np.uint8)
    images[7] = images[3]
    np.savez(tmp_path / "x.npz", x=images, y=[0] * 48 + [1] * 2)
    found = examine(find_images(tmp_path / "x.npz"), progress=False)
    assert (found.groups[7] == found.groups[3]) and found.exact_groups == 1 and found.near_groups == 0
    told = " ".join(summary(found))
    assert tells(told, "24 times") and tells(told, "50 tiny")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "folder"),
        (["empty"], "image"),
        (["broken"], "none 1 folder"),
        (["whole", "--test", "gone"], "folder"),
    ],
)
def test_bad_input_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "broken", "whole"):
        Path(name).mkdir()
    Path("broken/x.png").write_bytes(b"GIF89a")
    scene(0).save("whole/x.png")
    assert main(["doctor", *words]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("nearfar")]
    assert len(lines) == 1 and tells(lines[0], told), lines


def trained(data: Path, out: Path, *more: str) -> list[float]:
    """The losses of a short run."""
    words = ["--data", str(data), "--out", str(out), "--backbone", "micro", "--epochs", "2", "--batch-size", "4"]
    assert main(["train", *words, "--health-every", "1", *more]) == 0
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_training_with_the_doctors_groups_never_takes_a_duplicate_as_a_negative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of copies of one picture nobody is a negative: the loss of every step is exactly zero."""
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    for i in range(8):
        scene(0).save(data / f"{i}.png")
    assert main(["doctor", str(data), "-o", str(tmp_path / "found")]) == 0
    losses = trained(data, tmp_path / "grouped", "--group", str(tmp_path / "found/groups.csv"))
    assert losses == [0.0] * 4
    opened = open_images(data, stored_size=37, groups_file=tmp_path / "found/groups.csv", progress=False)
    assert opened.groups is not None and len(opened.groups.unique()) == 1


@pytest.mark.slow
def test_training_without_groups_pushes_copies_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    for i in range(8):
        scene(0).save(data / f"{i}.png")
    assert min(trained(data, tmp_path / "alone")) > 0.1


def test_the_command_at_the_end_can_be_copied_and_classes_alike_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = folder_of(tmp_path / "odd data", 2)
    for label in ("class0", "class1"):
        shutil.copy(data / "class0/0000.png", data / label / "copy.png")
    assert main(["doctor", "odd data", "--labels"]) == 0
    told = capsys.readouterr().out
    assert "nearfar train --data 'odd data' --group doctor/groups.csv" in told
    assert tells(told, "2 classes 2 images")
