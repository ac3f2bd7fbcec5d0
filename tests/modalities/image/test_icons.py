"""Named icons from the fonts of an installed package: here a small one made of matplotlib's DejaVu Sans."""

import json
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import torch

from nearfar.data.dataset import Dataset
from nearfar.data.fingerprint import fingerprint
from nearfar.modalities.image.data.icons import icons_source
from nearfar.modalities.image.data.letters import font_path
from nearfar.modalities.image.data.opening import has_own_splits, open_images
from tests.support.facts import facts, lists

LETTERS = {  # of each font: name and character
    "phosphor-charmap-1.3.0.json": {"bell": "B", "bell-bold": "C", "traffic-light": "T", "arrow-left": "L"},
    "remixicon-charmap-2.5.0.json": {"bell-line": "b", "arrow-left-line": "l", "gone-fill": "\U0010fffe"},
    "fontawesome5-solid-webfont-charmap-5.15.4.json": {"bell": "5", "old": "6"},
    "fontawesome6-solid-webfont-charmap-6.7.2.json": {"bell": "1", "arrow-left": "2", "left-arrow": "2", "only": "3"},
    "fontawesome6-regular-webfont-charmap-6.7.2.json": {"bell": "7"},
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution called qtawesome, first on the path, that cannot be imported."""
    site = tmp_path / "site"
    fonts, info = site / "qtawesome" / "fonts", site / "qtawesome-1.4.2.dist-info"
    fonts.mkdir(parents=True)
    info.mkdir()
    (site / "qtawesome" / "__init__.py").write_text("raise ImportError('this wants Qt')")
    for name, letters in LETTERS.items():
        (fonts / name).write_text(json.dumps({word: hex(ord(letter)) for word, letter in letters.items()}))
        shutil.copy(font_path("DejaVuSans"), fonts / name.replace("-charmap", "").replace(".json", ".ttf"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: qtawesome\nVersion: 1.4.2\n")
    files = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*")) if path.is_file()]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in [*files, "qtawesome-1.4.2.dist-info/RECORD"]))
    monkeypatch.syspath_prepend(str(site))
    return site


def opened(spec: str, cache: Path, split: str | None = None, size: int | None = None) -> Dataset:
    return open_images(spec, split=split, stored_size=size, cache=cache, progress=False)


def test_train_on_some_families_and_test_on_another(package: Path, tmp_path: Path) -> None:
    train, test = opened("icons", tmp_path), opened("icons", tmp_path, "test")
    assert list(train.names) == [
        "phosphor/arrow-left", "phosphor/bell", "phosphor/bell-bold", "phosphor/traffic-light",
        "remixicon/arrow-left-line", "remixicon/bell-line",
    ]  # fmt: skip
    assert list(test.names) == ["fontawesome/regular/bell", "fontawesome/solid/arrow-left", "fontawesome/solid/bell"]
    assert train.captions is not None and test.captions is not None and train.size == 64
    assert train.captions[2:5] == [
        ("bell bold", "bell"),
        ("traffic light", "traffic"),
        ("arrow left line", "arrow left"),
    ]
    assert test.captions[1] == ("arrow left", "left arrow")
    assert train.classes == test.classes and train.labels is not None and test.labels is not None
    assert [train.classes[i] for i in train.labels[[1, 2, 5]].tolist()] == ["bell"] * 3  # type: ignore[index]
    assert set(test.labels.tolist()) <= set(train.labels.tolist())
    assert train.groups is not None and torch.equal(train.groups, train.labels)
    assert lists(train.skipped, [("remixicon/gone-fill", "font")])
    assert "qtawesome" not in sys.modules


def test_any_family_can_be_held_out_and_all_be_asked_for(package: Path, tmp_path: Path) -> None:
    assert {name.split("/")[0] for name in opened("icons:phosphor", tmp_path).names} == {"fontawesome", "remixicon"}
    assert len(opened("icons:phosphor", tmp_path, "test")) == 3 and len(opened("icons", tmp_path, "all")) == 10
    with pytest.raises(ValueError, match=facts("'fosphor' fontawesome 'phosphor'")):
        opened("icons:fosphor", tmp_path)
    with pytest.raises(ValueError, match=facts("split 'train' 'test' 'all' 'val'")):
        opened("icons", tmp_path, "val")
    assert has_own_splits("icons:phosphor")


def test_drawn_black_on_white_in_the_middle_at_any_size(package: Path, tmp_path: Path) -> None:
    for size in (32, 96):
        data = opened("icons", tmp_path, "all", size)
        x = data.fetch(torch.arange(len(data)))  # (N, 3, size, size)
        ink = x[:, 0] < 128
        assert data.size == size and bool((x[:, :, 0] == 255).all()) and bool(ink.flatten(1).any(1).all())
        for one in ink:
            rows, columns = one.any(1).nonzero()[:, 0], one.any(0).nonzero()[:, 0]
            assert abs(int(rows[0] + rows[-1]) + 1 - size) <= 3 and abs(int(columns[0] + columns[-1]) + 1 - size) <= 3
    assert fingerprint(opened("icons", tmp_path)) == fingerprint(opened("icons", tmp_path / "other"))


def test_a_folder_of_that_name_wins(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "icons").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=facts("image")):
        opened("icons", tmp_path / "cache")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("nearfar.modalities.image.data.icons.distribution", absent)
    with pytest.raises(ModuleNotFoundError, match=facts("'nearfar[icons]'")) as error:
        open_images("icons")
    assert "\n" not in str(error.value)


def test_broken_charmap(package: Path) -> None:
    (package / "qtawesome" / "fonts" / "phosphor-charmap-1.3.0.json").write_text('{"bell": 7}')
    with pytest.raises(ValueError, match=facts("qtawesome")):
        icons_source()


def test_the_real_fonts() -> None:
    try:
        distribution("qtawesome")
    except PackageNotFoundError:
        pytest.skip("qtawesome is not installed")
    everything, test = icons_source(split="all"), icons_source(split="test")
    assert len(everything) > 16_000 and len(test) > 500
    assert "phosphor/arrow-left-bold" in everything.names and everything.captions is not None
    assert len(set(everything.names)) == len(everything)
    shared = {
        f"{name.split('/')[0]} {label}"
        for name, label in zip(everything.names, everything.labels.tolist(), strict=True)
    }  # type: ignore[union-attr]
    labels = [text.split()[1] for text in shared]
    assert sum(labels.count(label) > 1 for label in set(labels)) > 800
    assert len(everything.read(everything.names.index("fontawesome/solid/bell"), 64)) == 64
