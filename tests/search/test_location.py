"""A file of embeddings may be anyone's: it does not choose what is shown of this disk, or what is downloaded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from nearfar.explore.space import Space
from nearfar.search.embed import embed
from nearfar.search.files import Embeddings
from nearfar.search.location import SIGNATURE
from nearfar.search.thumbnails import picture_of
from tests.search.pictures import encoder_in, folder_of
from tests.search.test_text_query import color_towers
from tests.support.facts import facts


@pytest.fixture(autouse=True)
def own_key(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def space_of(path: Path, about: dict[str, Any], *names: str, data: str | None = None) -> Space:
    path.parent.mkdir(parents=True, exist_ok=True)
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.eye(len(names), 3, dtype=np.float32).ravel()), 3)
    table = pyarrow.table([pyarrow.array(names), vectors], names=["path", "vector"])
    parquet.write_table(table.replace_schema_metadata({"nearfar": json.dumps(about)}), path)
    return Space(color_towers(), Embeddings(path), data=data)


def test_a_file_of_anyone_shows_only_what_lies_beside_it(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "secret.png")
    (tmp_path / "secrets.csv").write_text("path\nsecret.png\n")
    (tmp_path / "shared" / "photos").mkdir(parents=True)
    Image.new("RGB", (8, 8), "green").save(tmp_path / "shared" / "photos" / "a.png")
    secret = str(tmp_path / "secret.png").lstrip("/")
    for data in ("/", str(tmp_path), str(tmp_path / "secrets.csv"), str(tmp_path / "shared" / ".."), ["/"], ""):
        space = space_of(tmp_path / "shared" / "x.parquet", {"data": data, SIGNATURE: "0" * 64}, secret, "secret.png")
        for name in space.names:
            with pytest.raises(ValueError, match=facts("--data")):
                picture_of(space.samples, name, 8)
    beside = {"data": str(tmp_path / "shared" / "photos")}
    space = space_of(tmp_path / "shared" / "x.parquet", beside, "a.png")
    assert picture_of(space.samples, "a.png", 8).shape == (8, 8, 3)
    space = space_of(tmp_path / "shared" / "x.parquet", {"data": "/"}, "secret.png", data=str(tmp_path))
    assert picture_of(space.samples, "secret.png", 8).shape == (8, 8, 3)  # as the command line says


def test_a_table_beside_the_file_leads_nowhere_else(tmp_path: Path) -> None:
    """The root that the run's configuration names counts for files of one's own alone."""
    (tmp_path / "shared").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    (tmp_path / "shared" / "link.png").symlink_to(tmp_path / "secret.png")
    for name, text in (("t.csv", "path\n../secret.png\nlink.png\n"), ("c.json", "{}")):
        (tmp_path / "shared" / name).write_text(text)
        space = space_of(tmp_path / "shared" / "x.parquet", {"data": str(tmp_path / "shared" / name)}, "../secret.png")
        for row in ("../secret.png", "link.png"):
            with pytest.raises(ValueError, match=r"expected|folder|secret|json"):
                picture_of(space.samples, row, 8)


def test_what_embed_wrote_is_shown_wherever_it_lies(tmp_path: Path) -> None:
    encoder, photos = encoder_in(tmp_path / "run"), folder_of(tmp_path / "photos", 4)
    (tmp_path / "elsewhere").mkdir()
    file = Embeddings(embed(encoder, photos, tmp_path / "elsewhere" / "x.parquet", progress=False).path)
    assert file.location().data == str(photos) and file.location().within is None
    file.about["data"] = "/"  # the signature is that of other data
    assert file.location().data is None


def test_nothing_is_downloaded_to_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearfar import _torchvision  # noqa: F401  before torchvision itself

    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", lambda *_: pytest.fail("a download"))
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    for data in ("cifar10", "mnist", "torchvision:stl10"):
        space = space_of(tmp_path / "x.parquet", {"data": data}, "0")
        with pytest.raises(ValueError, match=r"downloaded|torchvision"):
            picture_of(space.samples, "0", 8)


def test_a_table_of_images_beside_the_file_leads_nowhere_else(tmp_path: Path) -> None:
    """A cell of Hugging Face's tables may hold a path in place of bytes."""
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    (tmp_path / "shared").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "shared" / "own.png")
    cells = [{"bytes": None, "path": path} for path in (str(tmp_path / "secret.png"), "../secret.png", "own.png")]
    cells.append({"bytes": (tmp_path / "secret.png").read_bytes(), "path": "/x.png"})
    table = tmp_path / "shared" / "t.parquet"
    parquet.write_table(pyarrow.table({"image": cells}), table)
    space = space_of(tmp_path / "shared" / "x.parquet", {"data": str(table)}, *"0123")
    for name in "01":
        with pytest.raises(ValueError, match=r"outside|leads out"):
            picture_of(space.samples, name, 8)
    for name in "23":
        assert picture_of(space.samples, name, 8).shape == (8, 8, 3)


def test_billions_of_made_samples_are_not_made(tmp_path: Path) -> None:
    for data in ("glyphs:2000000000", "glyphs:compositional:99999999999", "waves:10000000"):
        assert space_of(tmp_path / "x.parquet", {"data": data}, "0").samples.data is None
    assert space_of(tmp_path / "x.parquet", {"data": "glyphs:200"}, "0").samples.data == "glyphs:200"
