"""What an experiment found: what theory says beside what was measured, tables, and lines to draw."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

Relation = Literal["=", "≤", "≥"]
Kind = Literal["theory", "identity", "ours"]
Tell = Callable[[str], None]  # says what is being done
Cell = str | int | float


def quiet(_: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Claim:
    """A number that theory gives for one that was measured.

    >>> Claim("bound", "≤", predicted=2.0, measured=2.01, tolerance=0.05).agrees
    True
    """

    what: str
    relation: Relation  # measured = predicted, ≤ predicted or ≥ predicted
    predicted: float
    measured: float
    tolerance: float = 0.0  # by which it may miss: rounding, or a few standard errors
    kind: Kind = "theory"  # "identity": true of any numbers, so it tests the code; "ours": a threshold set by hand

    @property
    def agrees(self) -> bool:
        """Whether the measurement is as predicted; what is not finite never is."""
        if not (math.isfinite(self.predicted) and math.isfinite(self.measured)):
            return False
        over = self.measured - self.predicted
        return (self.relation == "≤" or over >= -self.tolerance) and (self.relation == "≥" or over <= self.tolerance)


@dataclass(frozen=True)
class Table:
    """Rows of numbers with their names."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Line:
    """Points of a figure: measured, predicted by theory, a limit that cannot be passed, or a cloud."""

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    kind: Literal["measured", "predicted", "limit", "cloud"] = "measured"


@dataclass(frozen=True)
class Panel:
    """Lines that are read together."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log: Literal["", "x", "y", "xy"] = ""


@dataclass(frozen=True)
class Findings:
    """All that an experiment has to show."""

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
        """How many claims of each kind were measured so, in a sentence.

        >>> own = Claim("has learned", "≥", 0.5, 0.7, kind="ours")
        >>> Findings("", "", [Claim("one", "=", 1.0, 1.0), Claim("two", "=", 2.0, 2.0), own], []).verdict()
        'all 2 predictions agree with what was measured; 1 threshold of ours is met'
        """
        if self.agrees:
            said = {
                "theory": "all {} predictions agree with what was measured",
                "identity": "{} identities hold, which test the code",
                "ours": "{} thresholds of ours are met",
            }
            one = {
                "theory": "the one prediction agrees with what was measured",
                "identity": "1 identity holds, which tests the code",
                "ours": "1 threshold of ours is met",
            }
            counts = {kind: sum(claim.kind == kind for claim in self.claims) for kind in said}
            return "; ".join((one if n == 1 else said)[kind].format(n) for kind, n in counts.items() if n)
        said = {
            "theory": "predictions were not measured so",
            "identity": "identities do not hold",
            "ours": "thresholds of ours are not met",
        }
        parts = []
        for kind, what in said.items():
            agreed = [claim.agrees for claim in self.claims if claim.kind == kind]
            if not all(agreed):
                parts.append(f"{agreed.count(False)} of {len(agreed)} {what}")
        return "; ".join(parts)

    def numbers(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "experiment": self.name,
            "theory": self.theory,
            "agrees": self.agrees,
            "claims": [
                {
                    "what": c.what,
                    "kind": c.kind,
                    "relation": c.relation,
                    "predicted": c.predicted,
                    "measured": c.measured,
                    "tolerance": c.tolerance,
                    "agrees": c.agrees,
                }
                for c in self.claims
            ],
            "tables": [
                {"title": t.title, "columns": list(t.columns), "rows": [list(row) for row in t.rows]}
                for t in self.tables
            ],
            "curves": [
                {
                    "title": p.title,
                    "x": p.x,
                    "y": p.y,
                    "lines": [{**vars(line)} for line in p.lines if line.kind != "cloud"],
                }
                for p in self.panels
            ],
        }

    def write(self, path: Path, **more: Any) -> Path:
        """The numbers as JSON; NaN and infinity, which JSON has not, as null."""
        text = json.dumps(_finite({**more, **self.numbers()}), indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
        return path


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """The mean of independent measurements and its standard error."""
    if len(values) < 2:
        raise ValueError(f"{len(values)} measurement, expected at least two: one alone has no error")
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
