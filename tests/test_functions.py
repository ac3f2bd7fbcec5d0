"""The functions of `nearfar`: shown by `dir`, the same as the commands, with results that print."""

import gc
import inspect
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.data.python_data import ObjectData
from nearfar.python_objects import registered_objects
from nearfar.search.files import Embeddings
from tests.support.facts import facts, tells
from tests.support.untrained import untrained_run

PIXELS = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), np.uint8)
PIXELS[1] = PIXELS[0]
LABELS = np.arange(60) % 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


def test_dir_shows_them_and_each_is_there() -> None:
    functions = ["doctor", "duplicates", "embed", "evaluate", "explore", "export", "finish", "load", "report"]
    names = {"ContrastiveTransformer", "CustomViews", *functions, "search", "select", "train"}
    assert names <= set(dir(nearfar)) and set(nearfar.__all__) == names
    for name in names:
        found = getattr(nearfar, name)
        assert callable(found) and found.__doc__ and name in str(nearfar.__doc__)
        assert inspect.signature(found).parameters


def test_objects_are_evaluated_as_a_file_of_them_is(run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=PIXELS, y=LABELS)
    by_file = nearfar.evaluate(run, tmp_path / "data.npz", protocols=["knn"])
    by_object = nearfar.evaluate(run, (PIXELS, LABELS), protocols=["knn"])
    assert [row.value for row in by_file.rows] == [row.value for row in by_object.rows]
    with pytest.raises(ValueError, match=facts("array (samples, labels) geometry")):
        nearfar.evaluate(run, PIXELS, protocols=["knn"])
    split = nearfar.evaluate(run, {"train": (PIXELS[:40], LABELS[:40]), "test": (PIXELS[40:], LABELS[40:])})
    assert {row.n for row in split.rows if row.protocol == "knn"} == {20}
    assert "knn" in str(by_object) and "<pre" in by_object._repr_html_() and "knn" in by_object._repr_html_()


def test_objects_are_embedded_and_their_copies_found(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = nearfar.load(run)
    done = nearfar.embed(encoder, PIXELS, tmp_path / "x.parquet", progress=False)
    file = Embeddings(done.path)
    torch.testing.assert_close(next(file.pieces())[1], encoder.encode(PIXELS))
    found = nearfar.duplicates(done.path, progress=False)
    assert found.groups == [["0", "1"]] and found.path is None
    assert str(found).splitlines()[1].split() == ["2:", "0,", "1"] and "<pre" in found._repr_html_()
    assert main(["duplicates", str(done.path)]) == 0
    assert str(found).splitlines()[:2] == capsys.readouterr().out.splitlines()[:2]


def test_an_export_says_where_it_is(run: Path, tmp_path: Path) -> None:
    done = nearfar.export(run, out=tmp_path / "out")
    assert str(tmp_path / "out") in str(done).replace("\n", "") and nearfar.load(tmp_path / "out")


def test_a_package_is_called_and_imported_from(run: Path, tmp_path: Path) -> None:
    encoder = nearfar.load(run)
    done = nearfar.embed(encoder, PIXELS, tmp_path / "x.parquet", progress=False)
    found = nearfar.search(encoder, done, PIXELS[0], k=3, data=PIXELS, out=tmp_path / "sheet.png")
    assert set(found.names[:2]) == {"0", "1"} and len(found) == 3 and found.labels is None
    assert found.similarities[0] == pytest.approx(1, abs=1e-5) and (tmp_path / "sheet.png").is_file()
    assert "similarity" in str(found) and "1.0000" in str(found) and found._repr_html_().startswith("<img")
    assert set(nearfar.search(run, done.path, like="1", k=2).names) == {"0", "1"}
    from nearfar.search import Mining, mine_negatives
    from nearfar.search.search import search

    assert mine_negatives.__module__ == Mining.__module__ == "nearfar.search.mine" and search is not nearfar.search


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, "query like"), ({"query": "a.png", "like": "0"}, "query like"), ({"query": "a.png", "k": 0}, "k 0")],
)
def test_a_search_says_what_it_needs(run: Path, tmp_path: Path, options: dict[str, object], expected: str) -> None:
    with pytest.raises(ValueError, match=facts(expected)):
        nearfar.search(run, tmp_path / "none.parquet", **options)  # type: ignore[arg-type]


def test_the_doctor_examines_objects(tmp_path: Path) -> None:
    found = nearfar.doctor((PIXELS, LABELS), test=PIXELS[:5], out=tmp_path / "found", progress=False)
    assert found.groups == [["0", "1"]] and len(found.leaks) >= 5 and found.written["groups"].is_file()
    assert tells(str(found), "60 images") and "groups.csv" in str(found) and "<pre" in found._repr_html_()
    assert {problem.kind for problem in found.problems} == {"label conflict"}
    assert nearfar.doctor(PIXELS, progress=False).written == {}


def test_a_report_and_a_comparison(run: Path, tmp_path: Path) -> None:
    other = untrained_run(tmp_path / "other", seed=1)
    done = nearfar.report(run)
    assert done.path == run / "report.html" and tells(str(done), str(done.path))
    assert done.path.absolute().as_uri() in done._repr_html_()
    both = nearfar.report(run, other, out=tmp_path / "both.html")
    assert both.path.is_file() and list(both.verdicts) == [str(run), str(other)]
    for wrong, error in (([], ValueError), ([tmp_path / "none"], FileNotFoundError), ([3], TypeError)):
        with pytest.raises(error):
            nearfar.report(*wrong)  # type: ignore[arg-type]


def test_the_explorer_serves_until_it_is_stopped(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    with nearfar.explore(nearfar.load(run), data=PIXELS, progress=False) as page:
        assert page.address in str(page) and page.address in page._repr_html_()
        with urllib.request.urlopen(page.address) as answer:
            assert answer.status == 200
        other = np.random.default_rng(5).integers(0, 256, PIXELS.shape, np.uint8)
        with nearfar.explore(run, data=other, progress=False) as second:
            vectors = [next(each.runs[0].space.file.pieces())[1] for each in (page, second) if each.runs[0].space]
    assert not torch.equal(*vectors)  # of as many other samples, under the same name
    assert "stopped" in str(page)


def test_objects_are_forgotten_when_they_are_measured(run: Path, tmp_path: Path) -> None:
    before = len(registered_objects(ObjectData))
    nearfar.evaluate(run, (PIXELS, LABELS), protocols=["knn"])
    nearfar.embed(run, PIXELS, tmp_path / "x.npy", progress=False)
    nearfar.doctor(PIXELS, progress=False)
    done = nearfar.embed(run, PIXELS, tmp_path / "x.parquet", progress=False)
    found = nearfar.search(run, done, PIXELS[0], data=PIXELS)
    assert len(registered_objects(ObjectData)) == before + 1 and found._repr_html_().startswith("<img")
    del found
    gc.collect()
    assert len(registered_objects(ObjectData)) == before
