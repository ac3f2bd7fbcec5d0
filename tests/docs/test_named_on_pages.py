"""What pages name in passing is so: numbers that they take from results, flags, and scripts with their flags."""

import contextlib
import io
import re
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from nearfar.cli import COMMANDS, main
from nearfar.cli.train import SHORT
from nearfar.config import TrainConfig
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.methods import METHODS
from tests.docs.pages import PAGES, ROOT, code_in_text

_RESULT = re.compile(r"\]\(([^)\s]*benchmarks/results/[\w-]+\.md)\)")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
# A measure: with digits behind the point, or before a unit. What stands in code or before a version's point is none.
_MEASURE = re.compile(r"(?<![\w.,`-])(\d[\d,]*\.\d+|\d[\d,]*(?= ?(?:%|×|MiB|GiB|MB|GB)))(?![\w`])")
_GIVEN = {"95 %", "0.07", "1 %", "10 %", "100 %"}  # of intervals, temperatures and labels: set, not measured


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def measures(page: Path) -> list[tuple[str, list[Path]]]:
    """The numbers of each paragraph that links to results, and of tables beside it, with the pages of these results."""
    parts = re.split(r"\n\s*\n", _FENCE.sub("", page.read_text(encoding="utf-8")))
    found = []
    for place, part in enumerate(parts):
        results = [(page.parent / target).resolve() for target in _RESULT.findall(part)]
        tables = [beside for beside in parts[max(0, place - 1) : place + 2] if beside.lstrip().startswith("|")]
        for text in [part, *(tables if results and not part.lstrip().startswith("|") else [])] if results else []:
            found += [(number, results) for number in _MEASURE.findall(re.sub(r"`[^`]*`|\([^)\s]*\)", "", text))]
    return found


def is_among(number: str, text: str) -> bool:
    """Whether a text has this number, or one that it is a rounding of.

    >>> is_among("46.6", "| 46.6% (45.2% to 48.0%) |"), is_among("47", "46.6%"), is_among("48", "46.6%")
    (True, True, False)
    """
    digits = len(number.partition(".")[2])
    known = (float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*(?:\.\d+)?", text))
    value = float(number.replace(",", ""))
    return any(abs(each - value) <= 0.5001 * 10**-digits for each in known)


@pytest.mark.parametrize("page", [page for page in PAGES if measures(page)], ids=named)
def test_numbers_are_those_of_the_results_beside_them(page: Path) -> None:
    for number, results in measures(page):
        if f"{number} %" not in _GIVEN and number not in _GIVEN:
            text = "\n".join(each.read_text(encoding="utf-8") for each in results)
            where = " and ".join(each.name for each in results)
            assert is_among(number, text), f"{named(page)} says {number}, which is not in {where}"


def test_a_number_that_no_result_has_is_found(tmp_path: Path) -> None:
    page, result = tmp_path / "page.md", tmp_path / "benchmarks/results/x.md"
    result.parent.mkdir(parents=True)
    result.write_text("| simclr | 46.6% |\n")
    page.write_text("| a | k-NN |\n|---|---|\n| simclr | 56.6 % |\n\nFrom [x](benchmarks/results/x.md), 47 % of it.\n")
    assert [number for number, _ in measures(page)] == ["47", "56.6"]
    assert [is_among(number, result.read_text()) for number, _ in measures(page)] == [True, False]


@cache
def flags() -> set[str]:
    """All that a command takes, with hyphens."""
    found = {f"options.{option}" for kind in METHODS.values() for option in kind.options()}
    found |= {short.removeprefix("--") for short in SHORT}
    found |= {*keys(TrainConfig), *(f"protocols.{key}" for key in keys(ProtocolConfig))}
    for words in (["--help"], *([command, "--help-all"] for command in COMMANDS)):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main(words)
        found |= set(re.findall(r"--([\w.-]+)", said.getvalue()))
    return {flag.replace("_", "-") for flag in found}


def keys(kind: type[Any], prefix: str = "") -> list[str]:
    found = []
    for field in fields(kind):
        inner = get_type_hints(kind)[field.name]
        found.append(prefix + field.name)
        if isinstance(inner, type) and is_dataclass(inner):
            found += keys(inner, f"{prefix}{field.name}.")
    return found


def flags_of(page: Path) -> list[str]:
    """In code within sentences and tables; those of other programs are not ours to know."""
    ours = [each for each in code_in_text(page) if re.match(r"(nearfar |--)", each) and "KEY" not in each]
    return [flag for each in ours for flag in re.findall(r"(?<!\S)--([\w.-]+)", each)]


@pytest.mark.parametrize("page", [page for page in PAGES if flags_of(page)], ids=named)
def test_flags_are_there(page: Path) -> None:
    for flag in flags_of(page):
        assert flag.replace("_", "-") in flags(), f"{named(page)} names --{flag}, which no command takes"


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_table_of_methods_has_them_all(page: str) -> None:
    """With the modalities that each declares, in the order of the columns."""
    rows = re.findall(
        r"^\| ([a-z_0-9, ()]+) ((?:\| (?:✓ )?){7})\|$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    columns = ("image", "sound", "series", "text", "image-text", "sound-text", "table")
    found = {
        name: {kind for kind, mark in zip(columns, marks.split("|")[1:], strict=True) if mark.strip()}
        for names, marks in rows
        for name in re.sub(r" \([^)]*\)", "", names).split(", ")
    }
    assert found == {name: set(kind.modalities) for name, kind in METHODS.items()}
