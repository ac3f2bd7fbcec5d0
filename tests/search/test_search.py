"""Search: exact equals the dense definition, the indices find most of it, and the command shows it."""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from pyarrow import parquet
from rich.console import Console
from rich.table import Table

from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.modalities.image.modality import ImageModality
from nearfar.modalities.named_samples import inside
from nearfar.search import files as files_of
from nearfar.search.contact_sheet import CELL, unused_name
from nearfar.search.files import Embeddings
from nearfar.search.find import PathCell
from nearfar.search.index import lookup
from nearfar.search.location import Location
from nearfar.search.search import InMemory, neighbors, search
from nearfar.search.thumbnails import thumbnails
from tests.search.pictures import folder_of, run_folder, scene
from tests.support.facts import facts, tells

IMAGES = ImageModality(TrainConfig())


@pytest.fixture
def blobs() -> torch.Tensor:
    """(600, 16) in thirty clusters."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(30, 16, generator=generator)
    return centres.repeat(20, 1) + 0.3 * torch.randn(600, 16, generator=generator)


def stored(rows: torch.Tensor, file: Path) -> Embeddings:
    values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.flatten().numpy()), rows.shape[1])
    names = pyarrow.array([f"{i}.png" for i in range(len(rows))])
    parquet.write_table(pyarrow.table([names, values], names=["path", "vector"]), file, row_group_size=100)
    return Embeddings(file)


def test_exact_equals_the_dense_definition(
    blobs: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_of, "PIECE", 64 * 37)  # pieces of 37 rows
    file = stored(blobs, tmp_path / "x.parquet")
    assert len(list(file.pieces())) > 15
    query = 3 * torch.randn(5, 16)
    hits = search(query, file, k=50)
    dense = (F.normalize(query) @ F.normalize(blobs).T).topk(50)
    torch.testing.assert_close(hits.similarities, dense.values)
    assert torch.equal(hits.rows, dense.indices)
    assert search(query, file, k=5000).rows.shape == (5, 600)


def test_neighbors_leave_the_row_itself_out(blobs: torch.Tensor) -> None:
    z = F.normalize(blobs)
    dense = (z @ z.T).fill_diagonal_(-2).topk(7)
    hits = neighbors(InMemory(blobs), k=7)
    torch.testing.assert_close(hits.similarities, dense.values)
    assert torch.equal(hits.rows, dense.indices)
    same = neighbors(InMemory(torch.ones(6, 3)), k=2)  # all equal: each still finds others only
    assert (same.rows != torch.arange(6)[:, None]).all()


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_index_finds_most_of_what_is_there_and_is_kept(blobs: torch.Tensor, tmp_path: Path, kind: str) -> None:
    file = stored(blobs, tmp_path / "x.parquet")
    truth = search(blobs, file, k=10).rows
    found = search(blobs, file, k=10, find=lookup(file, kind, effort=5)).rows  # type: ignore[arg-type]
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(truth.tolist(), found.tolist(), strict=True)])
    assert share > 0.9
    kept = tmp_path / f"x.parquet.{kind}.faiss"
    before = kept.stat().st_mtime_ns
    lookup(file, kind)  # type: ignore[arg-type]
    assert kept.stat().st_mtime_ns == before
    kept.write_bytes(kept.read_bytes()[:200])  # cut short: built again, not believed
    again = search(blobs, file, k=10, find=lookup(file, kind, effort=5)).rows  # type: ignore[arg-type]
    assert again.shape == found.shape and kept.stat().st_size > 200
    newer = stored(blobs[:300], tmp_path / "x.parquet")  # the file changed
    assert int(search(blobs, newer, k=10, find=lookup(newer, kind)).rows.max()) < 300  # type: ignore[arg-type]


def test_without_faiss_the_extra_is_named(blobs: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ModuleNotFoundError, match=facts("'nearfar[search]'")) as error:
        lookup(stored(blobs, tmp_path / "x.parquet"), "hnsw")
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a folder of pictures and their embeddings."""
    place = tmp_path_factory.mktemp("search")
    folder_of(place / "data", 12)
    run = run_folder(place / "run")
    assert main(["embed", str(run), str(place / "data"), "-o", str(place / "out.parquet"), "--labels"]) == 0
    return place


def test_the_command_finds_the_picture_itself_and_draws_a_sheet(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    query = place / "data" / "class1" / "0005.png"
    words = ["search", str(place / "run"), str(place / "out.parquet"), "--image", str(query), "-k", "9"]
    assert main(words) == 0
    told = capsys.readouterr().out
    first = next(line for line in told.splitlines() if "0005.png" in line)
    assert "1.0000" in first and "class1" in first
    sheet = np.asarray(Image.open(tmp_path / "0005-neighbours.png"))
    assert sheet.shape[0] > 2 * CELL and sheet.shape[1] > 7 * CELL  # ten pictures in rows of seven
    queried, hit = sheet[10:100, 20:100].astype(int), sheet[10:100, CELL + 26 : CELL + 106].astype(int)
    assert np.abs(queried - hit).mean() < 2 and queried.std() > 5  # the nearest is the query's own picture


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["out.parquet", "--image", "nowhere.jpg"], "there is no file or folder 'nowhere.jpg'"),
        (["out.parquet", "--image", "notes.txt"], "cannot be read as a picture"),
        (["nowhere.parquet", "--image", "q.png"], "there is no file or folder 'nowhere.parquet', nearfar embed"),
        (["notes.txt", "--image", "q.png"], "expected .parquet, .npz, .npy"),
        (["cut.parquet", "--image", "q.png"], "is not a readable .parquet file"),
        (["table.parquet", "--image", "q.png"], "expected one called vector"),
        (["other.parquet", "--image", "q.png"], "made by another encoder"),
        (["narrow.npy", "--image", "q.png"], "narrow.npy (1, 256) 4"),
        (["nan.npy", "--image", "q.png"], "are not finite"),
        (["pickled.npy", "--image", "q.png"], "is not a readable .npy file"),
        (["pickled.npz", "--image", "q.png"], "is not a readable .npz file"),
        (["out.parquet", "--image", "q.png", "-k", "0"], "-k is 0, expected at least 1"),
        (["out.parquet", "--image", "q.png", "-o", "sheet.txt"], "expected a name that ends in .png"),
        (["out.parquet", "--image", "q.png", "--data", "nosuch"], "images shown 'nosuch' --data"),
        (["out.parquet", "--image", "q.png", "--data", "run"], "none of the samples can be shown --data"),
        (["plain.npy", "--image", "q.png"], "the file does not say where its samples are --data"),
    ],
)
def test_bad_input_is_told_in_a_line(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(place)
    scene(3).save("q.png")
    Path("notes.txt").write_text("no picture")
    whole = Path("out.parquet").read_bytes()
    Path("cut.parquet").write_bytes(whole[: len(whole) // 2])
    parquet.write_table(pyarrow.table({"path": ["a"]}), "table.parquet")
    table = parquet.read_table("out.parquet")
    parquet.write_table(table.replace_schema_metadata({"nearfar": '{"encoder": "x"}'}), "other.parquet")
    np.save("narrow.npy", np.ones((3, 4), np.float32))
    np.save("plain.npy", np.eye(3, 256, dtype=np.float32))
    np.save("nan.npy", np.full((3, 256), np.nan, np.float32))
    np.save("pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.savez("pickled.npz", vector=np.array([{"a": 1}], object))
    assert main(["search", "run", *words]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and tells(lines[0], told), lines
    assert not list(place.glob("*-neighbours.png")) and not Path("sheet.txt").exists()


@pytest.mark.parametrize("name", ["../secret.png", "/etc/secret.png", "a/../../secret.png", "..\\secret.png", "a\0b"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    scene(1).save(tmp_path / "secret.png")
    (tmp_path / "data").mkdir()
    with pytest.raises(ValueError, match=facts("folder")):
        inside(tmp_path / "data", name)
    shown, missing = thumbnails(IMAGES, [name], Location(str(tmp_path / "data")), size=8)
    assert len(missing) == 1 and shown[0].std() == 0


def test_thumbnails_of_data_that_is_no_folder(tmp_path: Path) -> None:
    shown, missing = thumbnails(IMAGES, ["3", "999999"], Location("glyphs:20"), size=32)
    assert shown[0].std() > 0 and len(missing) == 1
    for data in (None, str(tmp_path / "gone")):
        with pytest.raises(ValueError, match=facts("show")):
            thumbnails(IMAGES, ["3"], Location(data), size=8)


def test_a_contact_sheet_replaces_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cat-neighbours.png", "cat-neighbours-2.png", "cat-neighbours-3.png"):
        assert unused_name("cat-neighbours") == Path(name)
        Path(name).touch()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_path_keeps_the_name_of_its_file(width: int) -> None:
    path, out = f"photos/{'a-folder/' * 20}IMG_2841.jpg", io.StringIO()
    table = Table("similarity", "path", "label")
    table.add_row("0.9123", PathCell(path), "cat")
    Console(file=out, width=width).print(table)
    lines = out.getvalue().splitlines()
    (line,) = (line for line in lines if "0.9123" in line)
    assert "/IMG_2841.jpg" in line and "ph" in line and "…" in line and "cat" in line and len(line) <= width
