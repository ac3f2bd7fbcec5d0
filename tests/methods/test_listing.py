"""`nearfar methods`, and the table of the docs that is made from the same declarations."""

import inspect
from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.methods import METHODS
from nearfar.methods.listing import as_markdown, methods_for
from tests.support.facts import facts, tells

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "method.md"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_where_to_choose_it_and_names_its_paper(name: str) -> None:
    kind = METHODS[name]
    who, link = kind.reference
    assert kind.when and not kind.when.endswith(".") and link.startswith("https://")
    documented = " ".join((inspect.getdoc(kind) or "").split())
    assert link in documented and who in documented


def test_the_page_has_the_table_of_the_command() -> None:
    assert as_markdown(methods_for()) in PAGE.read_text(encoding="utf-8"), "put in: nearfar methods --markdown"


def test_they_are_listed_by_kind_of_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    everything = capsys.readouterr().out
    assert all(f"\n{name} " in f"\n{everything}" for name in METHODS)
    assert max(map(len, everything.splitlines())) <= 80
    assert main(["methods", "--modality", "text"]) == 0
    texts = capsys.readouterr().out
    assert "\nsimcse " in texts and "\nclip " not in texts
    with pytest.raises(ValueError, match=facts("--modality 'smell' sound")):
        methods_for("smell")


def test_one_is_described_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "byol"]) == 0
    said = capsys.readouterr().out
    assert "\n  --options.momentum 0.996\n" in said and "https://arxiv.org/abs/2006.07733\n" in said
    assert main(["methods", "byoll"]) == 1
    assert tells(capsys.readouterr().err, "'byol'")
