"""Each section of docs/pitfalls.md has its test, each test its section, and each all that a reader needs."""

import pytest

from tests.pitfalls.page import TESTS, Pitfall, pitfalls


def test_each_section_has_its_test_and_each_test_its_section() -> None:
    files = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} - {"page"}
    assert set(pitfalls()) == files


@pytest.mark.parametrize("pitfall", pitfalls().values(), ids=list(pitfalls()))
def test_a_section_has_symptom_damage_and_the_way_without_it(pitfall: Pitfall) -> None:
    assert len(pitfall.tests) == 1, f"{pitfall.title}: expected one test, found {pitfall.tests}"
    assert len(pitfall.python) == 2, f"{pitfall.title}: expected the code as met and the code with nearfar"
    assert pitfall.told, f"{pitfall.title}: no numbers; run python -m tests.pitfalls --write"
    places = [pitfall.words.find(word) for word in ("Met as", "**Symptom.**", "**Damage**", "**Instead.**")]
    assert places == sorted(places) and places[0] >= 0, f"{pitfall.title}: a part is missing or out of place"
    assert "nearfar" not in pitfall.python[0], f"{pitfall.title}: the code as met needs nothing of ours"
