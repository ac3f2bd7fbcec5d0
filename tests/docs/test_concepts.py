"""What docs/concepts shows under its code is what the code prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"
_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.mark.parametrize("page", sorted(CONCEPTS.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_shows_what_its_code_prints(page: Path) -> None:
    """Words to the letter, numbers to 2 %: what was trained or drawn differs a little between processors."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed, compared = "", 0
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            assert not printed, f"{printed!r} is printed and not shown"
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(text, page.name, "exec"), names)
            printed = said.getvalue()
        else:
            assert _NUMBER.sub("#", text) == _NUMBER.sub("#", printed)
            shown, measured = ([float(x) for x in _NUMBER.findall(each)] for each in (text, printed))
            assert shown == pytest.approx(measured, rel=0.02, abs=0.02)
            printed, compared = "", compared + 1
    assert compared and not printed
