"""The recipes: runs as YAML, each with the numbers it reached and where they come from.

The files are in `recipes/` of the sources, and beside this file where nearfar was installed from a wheel. Their numbers
are in `reached.json`, and a test holds those against `benchmarks/results`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.config import read_yaml

if TYPE_CHECKING:
    from nearfar.evaluation.results import Row

_HERE = Path(__file__).parent
REACHED = "reached.json"


@dataclass(frozen=True)
class Number:
    """What a recipe reached in one measure."""

    what: str
    value: float
    unit: str = ""  # "%", or nothing
    low: float | None = None  # the 95 % interval, where it is known
    high: float | None = None
    beside: dict[str, float] = field(default_factory=dict)  # the same of other encoders, by name
    protocol: str | None = None  # where the run's own evaluation measures it, how it is called there
    metric: str | None = None

    def __str__(self) -> str:
        words = f"{self.what} {self.shown(self.value)}"
        if self.low is not None and self.high is not None:
            words += f" ({self.shown(self.low, '')} to {self.shown(self.high, '')})"
        return words

    def shown(self, value: float, unit: str | None = None) -> str:
        """
        >>> Number("k-NN accuracy", 93.5, "%").shown(93.5), Number("Spearman", 0.427).shown(0.427)
        ('93.5 %', '0.427')
        """
        unit = self.unit if unit is None else unit
        return f"{value:.1f}{' ' + unit if unit else ''}" if self.unit == "%" else f"{value:.3f}"


@dataclass(frozen=True)
class Recipe:
    """One file, and what is known of it."""

    name: str
    path: Path
    text: str  # the file
    about: str  # its first comment
    method: str
    data: str  # what it is trained and tested on, in words
    needs: str | None = None  # the folder of data that it expects beside it
    numbers: tuple[Number, ...] = ()  # none where it was never measured
    time: str | None = None
    command: str | None = None  # that the numbers come from
    file: str | None = None  # that they are in

    @property
    def run(self) -> str:
        """The command that trains it, and where."""
        place = f"  (in a folder that holds {self.needs}/)" if self.needs else ""
        return f"nearfar train --config {self.name}{place}"


class Again(NamedTuple):
    """A number beside that of another run."""

    number: Number
    value: float

    @property
    def verdict(self) -> str:
        """ "as before", within the interval; else "more" or "LESS"."""
        low = self.number.value if self.number.low is None else self.number.low
        high = self.number.value if self.number.high is None else self.number.high
        return "LESS" if self.value < low else "more" if self.value > high else "as before"


def folder() -> Path:
    """Where the recipes are."""
    for place in (_HERE, _HERE.parents[2] / "recipes"):
        if (place / REACHED).is_file():
            return place
    raise FileNotFoundError("the recipes are neither beside the package nor in its sources; install nearfar again")


def names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.yaml"))


def recipes() -> Iterator[Recipe]:
    """All of them, by name."""
    known = json.loads((folder() / REACHED).read_text(encoding="utf-8"))
    for name in names():
        yield _read(name, known.get(name, {}))


def recipe(name: str) -> Recipe:
    """One of them.

    >>> recipe("glyphs-clip").method
    'clip'
    """
    known = names()
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "nearfar recipes lists them"
        raise ValueError(f"there is no recipe {name!r}; {hint}")
    reached = json.loads((folder() / REACHED).read_text(encoding="utf-8"))
    return _read(name, reached.get(name, {}))


def again(recipe: Recipe, rows: Sequence["Row"]) -> list[Again]:
    """The numbers of a recipe beside those of another run of it, as far as the run measured them."""
    found = {(row.protocol, row.metric): row.value for row in reversed(rows) if row.encoder == "trained"}
    return [
        Again(number, found[measure] * (100 if number.unit == "%" else 1))
        for number in recipe.numbers
        if (measure := (number.protocol or "", number.metric or "")) in found
    ]


def _read(name: str, known: dict[str, Any]) -> Recipe:
    path = folder() / f"{name}.yaml"
    text, settings = path.read_text(encoding="utf-8"), read_yaml(path)
    comment = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    numbers = tuple(
        Number(
            **{
                key: given[key]
                for key in ("what", "value", "unit", "low", "high", "protocol", "metric")
                if key in given
            },
            beside={who: other["value"] for who, other in given.get("beside", {}).items()},
        )
        for given in known.get("numbers", [])
    )
    return Recipe(
        name,
        path,
        text,
        about=" ".join(comment),
        method=str(settings.get("method", "simclr")),
        data=known.get("data") or str(settings["data"]),
        needs=str(settings["data"]).partition("/")[0] if "/" in str(settings["data"]) else None,
        numbers=numbers,
        time=known.get("time"),
        command=known.get("command"),
        file=known.get("file"),
    )
