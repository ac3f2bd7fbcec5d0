"""Numbers of the recipes: none drifts from `benchmarks/results`, and each is of the settings as they are."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nearfar.recipes import REACHED, folder, recipe

ROOT = Path(__file__).parents[2]
KNOWN: dict[str, Any] = json.loads((folder() / REACHED).read_text(encoding="utf-8"))
NUMBERS = [
    (name, number["what"], who, number if who is None else number["beside"][who])
    for name, known in KNOWN.items()
    for number in known.get("numbers", [])
    for who in (None, *number.get("beside", {}))
]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a page, each its rows; an empty cell of the first two columns stands for the one above it."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if not line.startswith("|"):
            found.append([])
        elif not set(line) <= set("|-: "):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            above = found[-1][-1] if len(found[-1]) > 1 else []
            found[-1].append([c or (above[i] if above and i < 2 else "") for i, c in enumerate(cells)])
    return [table for table in found if table]


def measured(file: str, row: list[str], column: str) -> list[float]:
    """The numbers of a cell: in the row that holds these texts ("=" before one: as a whole cell), in that column."""
    for head, *body in tables((ROOT / file).read_text(encoding="utf-8")):
        for cells in body if column in head else []:
            if all(any(c == text[1:] if text[0] == "=" else text in c for c in cells) for text in row):
                return [float(x) for x in re.findall(r"\d+\.\d+", cells[head.index(column)])]
    raise AssertionError(f"{file} has no row of {row} with a column {column!r}")


@pytest.mark.parametrize(("name", "what", "who", "number"), NUMBERS)
def test_no_number_drifts(name: str, what: str, who: str | None, number: dict[str, Any]) -> None:
    found = measured(KNOWN[name]["file"], number["row"], number["column"])
    given = [number[key] for key in ("value", "low", "high") if key in number]
    assert given == (found if who is None and len(found) == 3 else found[:1])


@pytest.mark.parametrize("name", [name for name, known in KNOWN.items() if known.get("numbers")])
def test_numbers_are_of_the_settings_as_they_are(name: str) -> None:
    """A recipe that is changed is measured again; then its sum goes into reached.json."""
    assert KNOWN[name]["settings"] == settings_sum(recipe(name).text), f"{name}.yaml is not what its numbers are of"


def settings_sum(text: str) -> str:
    """Of all keys and values; comments and their order count for nothing.

    >>> settings_sum("a: 1  # one\\nb: {c: 2}") == settings_sum("b:\\n  c: 2\\na: 1")
    True
    """
    return hashlib.sha256(json.dumps(yaml.safe_load(text), sort_keys=True).encode()).hexdigest()[:12]
