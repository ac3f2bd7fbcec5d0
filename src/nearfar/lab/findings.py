"""Results of an experiment: theory beside measurement, tables, and lines to draw."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

Relation = Literal["=", "≤", "≥"]
Kind = Literal["theory", "identity", "ours"]
Progress = Callable[[str], None]  # called with what is being done
Cell = str | int | float
_KINDS = {"theory": "predictions of theory", "identity": "identities that test the code", "ours": "thresholds of ours"}


def no_progress(_: str) -> None:
    """Reports nothing."""


@dataclass(frozen=True)
class Claim:
    """A measured number beside the one that theory predicts.

    >>> Claim("bound", "≤", predicted=2.0, measured=2.01, tolerance=0.05).agrees
    True
    """

    what: str
    relation: Relation  # measured = predicted, ≤ predicted or ≥ predicted
    predicted: float
    measured: float
    tolerance: float = 0.0  # for rounding, or a few standard errors
    kind: Kind = "theory"  # "identity": always true, so it tests the code; "ours": a threshold that we chose

    @property
    def agrees(self) -> bool:
        """Whether the measurement is as predicted; False if a number is not finite."""
        if not (math.isfinite(self.predicted) and math.isfinite(self.measured)):
            return False
        over = self.measured - self.predicted
        return (self.relation == "≤" or over >= -self.tolerance) and (self.relation == "≥" or over <= self.tolerance)


@dataclass(frozen=True)
class Table:
    """Rows of numbers with column names."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Line:
    """Points of a figure: measured, predicted by theory, a limit, or a scatter plot (cloud)."""

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    kind: Literal["measured", "predicted", "limit", "cloud"] = "measured"

    @classmethod
    def with_theory(
        cls, name: str, x: Sequence[float], measured: Sequence[float], predicted: Sequence[float]
    ) -> tuple["Line", "Line"]:
        """A measured line and the one that theory predicts, in one color."""
        return cls(name, x, measured), cls(name, x, predicted, "predicted")

    @classmethod
    def limit(cls, name: str, x: Sequence[float], value: float) -> "Line":
        """A horizontal line from the first to the last x."""
        return cls(name, [x[0], x[-1]], [value, value], "limit")


@dataclass(frozen=True)
class Panel:
    """One plot."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log: Literal["", "x", "y", "xy"] = ""


@dataclass(frozen=True)
class Findings:
    """All results of an experiment."""

    name: str
    theory: str  # in a sentence or two
    claims: Sequence[Claim]
    tables: Sequence[Table]
    panels: Sequence[Panel] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether every claim was measured as predicted."""
        return all(claim.agrees for claim in self.claims)

    def verdict(self) -> str:
        """How many claims of each kind agree, in a sentence.

        >>> own = Claim("has learned", "≥", 0.5, 0.7, kind="ours")
        >>> Findings("", "", [Claim("one", "=", 1.0, 1.0), Claim("two", "=", 2.0, 2.0), own], []).verdict()
        '2 of 2 predictions of theory agree; 1 of 1 thresholds of ours agree'
        """
        parts = []
        for kind, name in _KINDS.items():
            agreed = [claim.agrees for claim in self.claims if claim.kind == kind]
            if agreed:
                parts.append(f"{sum(agreed)} of {len(agreed)} {name} agree")
        return "; ".join(parts)

    def numbers(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "experiment": self.name,
            "theory": self.theory,
            "agrees": self.agrees,
            "claims": [{**asdict(claim), "agrees": claim.agrees} for claim in self.claims],
            "tables": [asdict(table) for table in self.tables],
            "curves": [
                {"title": p.title, "x": p.x, "y": p.y, "lines": [asdict(x) for x in p.lines if x.kind != "cloud"]}
                for p in self.panels
            ],
        }

    def write(self, path: Path, **more: Any) -> Path:
        """The numbers as JSON; NaN and infinity, which JSON does not have, as null."""
        text = json.dumps(_finite({**more, **self.numbers()}), indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
        return path


Part = tuple[list[Claim], Table, list[Panel]]  # of an experiment


Parts = Callable[[torch.Generator, bool, Progress], list[Part]]
Experiment = Callable[..., Findings]  # of a seed; `quick` uses fewer samples and steps


def experiment(theory: str) -> Callable[[Parts], Experiment]:
    """Decorates a function that returns the parts of an experiment: makes it an `Experiment` of the same name."""

    def decorate(parts_of: Parts) -> Experiment:
        def run(seed: int = 0, *, quick: bool = False, progress: Progress = no_progress) -> Findings:
            claims, tables, panels = zip(*parts_of(torch.Generator().manual_seed(seed), quick, progress), strict=True)
            return Findings(parts_of.__name__, theory, [*chain(*claims)], tables, [*chain(*panels)])

        return run

    return decorate


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """The mean of independent measurements and its standard error."""
    if len(values) < 2:
        raise ValueError(f"{len(values)} measurement, expected at least two, to estimate the error")
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
