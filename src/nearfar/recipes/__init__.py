"""Recipes: runs as YAML, each with the numbers it reached and the command that measured them.

The files are in `recipes/` of the sources, and beside this file where nearfar was installed from a wheel. The numbers
are in `reached.json`; a test compares them with `benchmarks/results`.

YAML as `nearfar train --config` takes it, and `reached.json`: of each number the value, its interval, what stands
beside it, the file and table cell it is from, the command, and, where the run's own evaluation measures it, protocol
and metric. A test reads the cells. They are at the root of the sources, where people look, and beside the code in a
wheel. A rerun is compared within the interval of the test samples; the chance of another machine's rounding is not in
it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearfar.data.config import DataConfig
from nearfar.messages import nearest
from nearfar.settings import as_section
from nearfar.yaml_reader import read_yaml

__all__ = ["Number", "Recipe", "recipe", "recipes"]

_HERE = Path(__file__).parent
REACHED = "reached.json"


@dataclass(frozen=True)
class Number:
    """One number that a recipe reached."""

    what: str
    value: float
    unit: str = ""  # "%" or nothing
    low: float | None = None  # 95 % interval, where known
    high: float | None = None
    beside: dict[str, float] = field(default_factory=dict)  # of other encoders, by name
    protocol: str | None = None  # in the run's own evaluation, where it measures this number
    metric: str | None = None

    def __str__(self) -> str:
        text = f"{self.what} {self.shown(self.value)}"
        if self.low is not None and self.high is not None:
            text += f" ({self.shown(self.low, '')} to {self.shown(self.high, '')})"
        return text

    def shown(self, value: float, unit: str | None = None) -> str:
        """
        >>> Number("k-NN accuracy", 93.5, "%").shown(93.5), Number("Spearman", 0.427).shown(0.427)
        ('93.5 %', '0.427')
        """
        unit = self.unit if unit is None else unit
        return f"{value:.1f}{' ' + unit if unit else ''}" if self.unit == "%" else f"{value:.3f}"


@dataclass(frozen=True)
class Recipe:
    """One file, and what is known about it."""

    name: str
    path: Path
    text: str  # the file
    about: str  # its comments
    method: str
    data: str  # what it is trained and tested on
    needs: str | None = None  # folder of data that it expects in the working directory
    numbers: tuple[Number, ...] = ()  # empty where it was not measured
    time: str | None = None
    command: str | None = None  # that measured the numbers
    file: str | None = None  # that holds them

    @property
    def run(self) -> str:
        """The command that trains it, and where."""
        place = f"  (in a folder that holds {self.needs}/)" if self.needs else ""
        return f"nearfar train --config {self.name}{place}"


def folder() -> Path:
    """Where the recipes are."""
    for place in (_HERE, _HERE.parents[2] / "recipes"):
        if (place / REACHED).is_file():
            return place
    raise FileNotFoundError("the recipes are missing from the installation; reinstall nearfar")


def names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.yaml"))


def recipes() -> Iterator[Recipe]:
    """All recipes, by name."""
    return map(recipe, names())


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    >>> recipe("glyphs-clip").method
    'clip'
    """
    known = names()
    if name not in known:
        hint = nearest(name, known) or "; nearfar recipes lists them"
        raise ValueError(f"there is no recipe {name!r}{hint}")
    path = folder() / f"{name}.yaml"
    text, settings = path.read_text(encoding="utf-8"), read_yaml(path)
    reached = json.loads((folder() / REACHED).read_text(encoding="utf-8")).get(name, {})
    comment = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    data = str(as_section(DataConfig, settings["data"])["path"])
    return Recipe(
        name,
        path,
        text,
        about=" ".join(comment),
        method=str(settings.get("method", "simclr")),
        data=reached.get("data") or data,
        needs=data.partition("/")[0] if "/" in data else None,
        numbers=tuple(map(_number, reached.get("numbers", []))),
        **{key: reached.get(key) for key in ("time", "command", "file")},
    )


def _number(reached: dict[str, Any]) -> Number:
    fields = ("what", "value", "unit", "low", "high", "protocol", "metric")
    beside = {who: other["value"] for who, other in reached.get("beside", {}).items()}
    return Number(**{key: reached[key] for key in fields if key in reached}, beside=beside)
