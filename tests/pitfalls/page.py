"""What docs/pitfalls.md says: of each section its code, wrong and right, its numbers, and the test of them.

- **The wrong code on a page is the code that a test runs.** `tests/pitfalls/page.py` takes it from the section, so
  page and test cannot part; the numbers under it are compared with what the test measures. Damage that needs training
  is shown on one small world whose views keep a few features and draw louder ones anew: learning shows there within
  150 steps. A number is as exact as it is on another processor: what moves with rounding is counted or averaged, not
  given leeway.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

Numbers = dict[str, float]  # by name, as a block of the page has them

PAGE = Path(__file__).parents[2] / "docs" / "pitfalls.md"
TESTS = Path(__file__).parent

_TEST = re.compile(r"`tests/pitfalls/test_(\w+)\.py`")
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"(.+?)\s{2,}(\S+)")


@dataclass(frozen=True)
class Pitfall:
    """One section."""

    title: str
    tests: list[str]  # names of those it gives, without test_ and .py
    python: list[str]  # its blocks: as met, then with nearfar
    told: Numbers  # its numbers by name
    words: str


@functools.cache
def opening() -> str:
    """The first block of the page: what all others import."""
    return _blocks(_parts()[0], "python")[0]


@functools.cache
def pitfalls() -> dict[str, Pitfall]:
    """By the name of their test."""
    found = {}
    for part in _parts()[1:]:
        title, _, words = part.partition("\n")
        tests = _TEST.findall(words)
        told = [_NUMBER.fullmatch(line.strip()) for block in _blocks(words, "text") for line in block.splitlines()]
        numbers = {match[1]: float(match[2]) for match in told if match}
        found[tests[0] if tests else title] = Pitfall(title, tests, _blocks(words, "python"), numbers, words)
    return found


def code_of(test: str) -> dict[str, Any]:
    """The names that the blocks of a section define, run as they stand after the page's imports."""
    names: dict[str, Any] = {}
    for block in [opening(), *pitfalls()[test].python]:
        exec(compile(block, f"{PAGE.name}, {test}", "exec"), names)
    return names


def as_told(
    test: str,
    measured: Numbers,
    claim: Callable[[Numbers], None],
    within: Mapping[str, float] = MappingProxyType({}),
    *,
    told: Numbers | None = None,
) -> None:
    """The page has these numbers and no others, and what its section says is true of both.

    Args:
        claim: asserts what the section says, of numbers by name.
        within: by how much a number may differ, where it was trained, which differs a little from processor to
            processor, or depends on the version of torch. All others are equal in every digit of the page.
        told: what the page tells; read from it if not given.
    """
    told = pitfalls()[test].told if told is None else told
    assert told.keys() == measured.keys(), f"docs/pitfalls.md tells of {sorted(told)}; run python -m tests.pitfalls"
    for name, value in measured.items():
        said = f"{name} is {_digits(value)}, docs/pitfalls.md says {told[name]:g}; run python -m tests.pitfalls --write"
        if name in within:
            assert abs(told[name] - value) <= within[name], said
        elif not (math.isnan(value) and math.isnan(told[name])):
            assert told[name] == float(_digits(value)), said
    claim(measured)
    claim(told)


def written(measured: Numbers, within: Mapping[str, float] = MappingProxyType({})) -> str:
    """The numbers as the page has them."""
    width = max(map(len, measured))
    return "".join(f"{name:<{width}}  {_digits(value, within.get(name))}\n" for name, value in measured.items())


def _digits(value: float, within: float | None = None) -> str:
    """Three digits, or as many behind the point as the tolerance reaches.

    >>> _digits(0.02848), _digits(0.7203, within=0.008), _digits(4269.0)
    ('0.0285', '0.720', '4269')
    """
    if within is not None:
        return f"{value:.{max(0, -math.floor(math.log10(within)))}f}"
    return f"{value:.3g}" if abs(value) < 1000 or not math.isfinite(value) else f"{value:.0f}"


def _parts() -> list[str]:
    return re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _blocks(text: str, language: str) -> list[str]:
    return [code for name, code in _BLOCK.findall(text) if name == language]
