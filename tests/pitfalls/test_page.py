"""Each section of docs/pitfalls.md has its test, each test its section, and each all that a reader needs."""

import importlib
import math
from types import ModuleType

import pytest

from tests.pitfalls.page import TESTS, Numbers, Pitfall, as_told, pitfalls, written


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


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"tests.pitfalls.test_{name}")


def within(name: str) -> Numbers:
    """The tolerances of a section's numbers; what has none is held to every digit."""
    return getattr(module_of(name), "WITHIN", {})


def altered(value: float) -> list[float]:
    """What an author might have mistyped: a fifth more or less, the other sign."""
    if math.isnan(value):
        return [0.0, 1.0]
    return [1.2 * value, 0.8 * value, -value] if value else [0.05, -0.05]


def passes(name: str, told: Numbers) -> bool:
    """Whether a page that tells this would pass, where what is measured is what the page tells now."""
    try:
        as_told(name, pitfalls()[name].told, module_of(name).claim, within(name), told=told)
    except AssertionError:
        return False
    return True


NUMBERS = [(name, number) for name, pitfall in pitfalls().items() for number in pitfall.told]


@pytest.mark.parametrize(("name", "number"), NUMBERS, ids=[f"{name}: {number}" for name, number in NUMBERS])
def test_a_page_with_another_number_fails(name: str, number: str) -> None:
    told = pitfalls()[name].told
    assert passes(name, told)
    for other in altered(told[number]):
        assert not passes(name, told | {number: other}), f"{number} may be {other:g} where {told[number]:g} is measured"


@pytest.mark.parametrize("name", pitfalls())
def test_tolerances_are_below_a_tenth_of_the_number(name: str) -> None:
    """So a fifth more or less fails on a processor, too, that measures what just passes."""
    told = pitfalls()[name].told
    for number, tolerance in within(name).items():
        assert tolerance < (abs(told[number]) / 10 or 0.05), f"{number}: {tolerance} of {told[number]}"


WRONG_AND_RIGHT = [name for name, pitfall in pitfalls().items() if any(", right" in each for each in pitfall.told)]


@pytest.mark.parametrize("name", WRONG_AND_RIGHT)
def test_a_page_on_which_wrong_is_right_fails_its_claim(name: str) -> None:
    told, other = pitfalls()[name].told, {"wrong": "right", "right": "wrong"}
    swapped = {
        number: told.get(", ".join([*what, other.get(side, side)]), told[number])
        for number in told
        for *what, side in [number.split(", ")]
    }
    module_of(name).claim(told)
    with pytest.raises(AssertionError):
        module_of(name).claim(swapped)


@pytest.mark.parametrize("name", pitfalls())
def test_numbers_are_printed_as_far_as_they_are_held(name: str) -> None:
    assert f"```text\n{written(pitfalls()[name].told, within(name))}```" in pitfalls()[name].words
