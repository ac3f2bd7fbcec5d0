"""The functions of `nearfar`: shown by `dir`, the same as the commands, with results that print."""

from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.search.files import Embeddings
from tests.support.untrained import untrained_run

PIXELS = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), np.uint8)
PIXELS[1] = PIXELS[0]
LABELS = np.arange(60) % 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


def test_dir_shows_them_and_each_is_there() -> None:
    names = {"CustomViews", "duplicates", "embed", "evaluate", "export", "finish", "load", "train"}
    assert names <= set(dir(nearfar)) and set(nearfar.__all__) == names
    for name in names:
        assert getattr(nearfar, name).__doc__


def test_objects_are_evaluated_as_a_file_of_them_is(run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=PIXELS, y=LABELS)
    by_file = nearfar.evaluate(run, tmp_path / "data.npz", protocols=["knn"])
    by_object = nearfar.evaluate(run, (PIXELS, LABELS), protocols=["knn"])
    assert [row.value for row in by_file.rows] == [row.value for row in by_object.rows]
    split = nearfar.evaluate(run, {"train": (PIXELS[:40], LABELS[:40]), "test": (PIXELS[40:], LABELS[40:])})
    assert {row.n for row in split.rows if row.protocol == "knn"} == {20}
    assert "knn" in str(by_object) and "<pre" in by_object._repr_html_() and "knn" in by_object._repr_html_()


def test_objects_are_embedded_and_their_copies_found(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = nearfar.load(run)
    done = nearfar.embed(encoder, PIXELS, tmp_path / "x.parquet", progress=False)
    file = Embeddings(done.path)
    torch.testing.assert_close(next(file.pieces())[1], encoder.encode(torch.from_numpy(PIXELS).permute(0, 3, 1, 2)))
    found = nearfar.duplicates(done.path, progress=False)
    assert found.groups == [["0", "1"]] and found.path is None
    assert str(found).splitlines()[1].split() == ["2:", "0,", "1"] and "<pre" in found._repr_html_()
    assert main(["duplicates", str(done.path)]) == 0
    assert str(found).splitlines()[:2] == capsys.readouterr().out.splitlines()[:2]


def test_an_export_says_where_it_is(run: Path, tmp_path: Path) -> None:
    done = nearfar.export(run, out=tmp_path / "out")
    assert str(tmp_path / "out") in str(done).replace("\n", "") and nearfar.load(tmp_path / "out")
