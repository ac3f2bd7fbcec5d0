"""Every page says what the reader gets and where to go next; the changelog has a line for each entry."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT

OWN = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "zh" not in page.parts]
FREE = {"index.md", "security.md"}  # begin or end in another way that serves the same purpose
MOST = 460  # characters of an entry


def named(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


@pytest.mark.parametrize("page", OWN, ids=named)
def test_a_page_begins_with_what_the_reader_gets(page: Path) -> None:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line]
    assert any(line.startswith("You get: ") for line in lines[:3]) or named(page) in FREE


@pytest.mark.parametrize("page", [page for page in OWN if page.parent.name != "reference"], ids=named)
def test_a_page_ends_with_where_to_go_next(page: Path) -> None:
    end = page.read_text(encoding="utf-8").splitlines()[-12:]
    assert any(line.startswith("Next: ") for line in end) or named(page) in FREE


def test_an_entry_of_the_changelog_is_one_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("## ")[2].splitlines()
    assert all(not line or line.startswith(("#", "- ", "Unreleased", "Versions")) for line in lines[1:])
    assert max(map(len, lines)) <= MOST
