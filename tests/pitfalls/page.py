"""What docs/pitfalls.md says: of each section its code, wrong and right, its numbers, and the test of them."""

import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
    told: dict[str, float]  # its numbers by name
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


def as_told(test: str, measured: dict[str, float], *, within: float = 0.006, off: float = 1e-9) -> None:
    """The page has these numbers and no others.

    Args:
        within: the part of itself by which a number may differ; it has three digits. What was trained differs a
            little from processor to processor.
        off: by how much it may differ in any case.
    """
    told = pitfalls()[test].told
    assert told.keys() == measured.keys(), f"docs/pitfalls.md tells of {sorted(told)}; run python -m tests.pitfalls"
    for name, value in measured.items():
        if math.isnan(value):
            assert math.isnan(told[name]), f"{name} is nan, docs/pitfalls.md says {told[name]}"
        else:
            assert told[name] == pytest.approx(value, rel=within, abs=off), name


def written(measured: dict[str, float]) -> str:
    """The numbers as the page has them."""
    width = max(map(len, measured))
    return "".join(f"{name:<{width}}  {_digits(value)}\n" for name, value in measured.items())


def _digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 or not math.isfinite(value) else f"{value:.0f}"


def _parts() -> list[str]:
    return re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _blocks(text: str, language: str) -> list[str]:
    return [code for name, code in _BLOCK.findall(text) if name == language]
