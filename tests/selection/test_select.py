"""`nearfar.select` and its command: the same seed selects the same, labelled files are matched, errors name the way."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.selection.labelled import read_labelled
from tests.search.pictures import folder_of, run_folder
from tests.support.facts import facts, tells

STRATEGIES = ("facility", "k-center", "typical", "random")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures, a run, and the embeddings of the pictures."""
    folder = tmp_path_factory.mktemp("select")
    folder_of(folder / "photos", 40)
    run = run_folder(folder / "run")
    nearfar.embed(run, str(folder / "photos"), folder / "photos.parquet", labels=True, progress=False)
    return folder


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_seed_selects_the_same_again(strategy: str) -> None:
    x = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    once, again = (nearfar.select(x, 20, strategy=strategy, seed=3, progress=False) for _ in range(2))  # type: ignore[arg-type]
    assert once == again and len(set(once.rows)) == 20
    assert "20 of 200" in str(once) and "<pre" in once._repr_html_()


def test_the_command_writes_a_table_and_a_sheet(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["select", str(pictures / "photos.parquet"), "-n", "6", "-o", "next.csv"]) == 0
    with Path("next.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == list("123456") and all(row["path"] and row["reason"] for row in rows)
    assert Path("next.png").stat().st_size > 1000 and tells(capsys.readouterr().out, "6 of 40 next.csv next.png")
    assert main(["select", str(pictures / "photos"), "-n", "6", "--encoder", str(pictures / "run"), "-o", "b.csv"]) == 0
    assert Path("b.csv").read_text() == Path("next.csv").read_text()


def test_labelled_samples_are_covered_and_teach_a_probe(pictures: Path, tmp_path: Path) -> None:
    first = nearfar.select(pictures / "photos.parquet", 10, strategy="random", progress=False)
    table = tmp_path / "labelled.csv"
    table.write_text("path,label\n" + "".join(f"{name},{Path(name).parent.name}\n" for name in first.names))
    for strategy in ("uncertain", "facility"):
        found = nearfar.select(
            pictures / "photos.parquet",
            10,
            strategy=strategy,
            labelled=table,
            progress=False,  # type: ignore[arg-type]
        )
        assert found.labelled == 10 and not set(found.names) & set(first.names)
    table.write_text("path\n" + "".join(f"{name}\n" for name in first.names))
    both = nearfar.select(
        pictures / "photos.parquet", 10, strategy="uncertain", labelled=table, balance="classes", progress=False
    )  # the embeddings have the labels
    assert "class0 or class1" in both.reasons[0] or "class1 or class0" in both.reasons[0]
    classes = [Path(name).parent.name for name in [*first.names, *both.names]]
    assert classes.count("class0") == 10


def test_labelled_paths_match_names_and_their_ends(tmp_path: Path) -> None:
    names = ["a/1.png", "a/2.png", "b/1.png", "b/3.png"]
    file = tmp_path / "known.txt"
    file.write_text("/home/of/someone/photos/a/1.png\nb/1.png\n3.png\n1.png\nmissing.png\n")
    assert read_labelled(file, names).rows.tolist() == [0, 2, 3]
    file.write_text("missing.png\n")
    with pytest.raises(ValueError, match=facts("known.txt missing.png a/1.png")):
        read_labelled(file, names)


def test_errors_say_what_to_do(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=facts("photos --encoder")):
        nearfar.select(pictures / "photos", 3)
    with pytest.raises(ValueError, match=facts("uncertain --labelled")):
        nearfar.select(torch.randn(5, 2), 3, strategy="uncertain")
    with pytest.raises(ValueError, match=facts("n 0")):
        nearfar.select(torch.randn(5, 2), 0)
    with pytest.raises(ValueError, match=facts("strategy facilty facility")):
        nearfar.select(torch.randn(5, 2), 1, strategy="facilty")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=facts("gone.csv")):
        nearfar.select(torch.randn(5, 2), 1, labelled=tmp_path / "gone.csv")
    with pytest.raises(ValueError, match=facts("classes clusters")):
        nearfar.select(torch.randn(5, 2), 1, balance="classes", progress=False)
