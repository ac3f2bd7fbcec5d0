"""Data that a run names and not the user: no whole machine is searched for them."""

from pathlib import Path

import pytest

from nearfar.data import downloads
from nearfar.data.downloads import downloads_allowed, named_by_run
from tests.support.facts import facts

PICTURES = frozenset({".png"})


def filled(folder: Path, names: str, count: int) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / names.format(number)).touch()
    return folder


def test_a_disk_a_home_and_what_is_around_the_run_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, run = tmp_path / "users" / "ada", filled(tmp_path / "work" / "run", "{}.txt", 1)
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to("/")
    around = (home, "~", home.parent, run, run.parent, "/", "/..", tmp_path / "link")
    for each in (*around, "/*/*/*.tar", tmp_path / "**/a.tar"):
        with pytest.raises(ValueError, match=facts("--data")), named_by_run(run, PICTURES, None, str(each)):
            pytest.fail(f"{each} would be searched")
    photos = filled(home / "photos", "{}.png", 3)
    for right in (photos, tmp_path / "gone", photos / "{0..2}.tar", "glyphs", "a\0b"):
        with named_by_run(run, PICTURES, str(right)):
            assert not downloads_allowed()
    assert downloads_allowed()


def test_a_large_folder_of_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "MANY", 60)
    other, photos = filled(tmp_path / "a" / "b", "{}.txt", 100), filled(tmp_path / "photos", "{}.PNG", 100)
    with pytest.raises(ValueError, match=facts("0 --data")), named_by_run(None, PICTURES, str(other.parent)):
        pytest.fail("would be searched")
    for right, suffixes in ((photos, PICTURES), (other, frozenset[str]())):  # the last: of a kind that searches none
        with named_by_run(None, suffixes, str(right)):
            pass


def test_a_link_to_a_disk_is_not_followed_and_one_to_itself_ends(tmp_path: Path) -> None:
    photos = filled(tmp_path / "photos", "{}.png", 3)
    (photos / "again").symlink_to(photos)
    with named_by_run(None, PICTURES, str(photos)):
        pass
    (photos / "all").symlink_to("/")
    with pytest.raises(ValueError, match=facts("link --data")), named_by_run(None, PICTURES, str(photos)):
        pytest.fail("the disk would be searched")
