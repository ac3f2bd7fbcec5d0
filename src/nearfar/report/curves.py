"""The curves of a run, as data for the page's charts and as a sentence each."""

import math
from dataclasses import dataclass, replace
from typing import Any

_POINTS = 500  # of a line, at most: more than a chart has room for


@dataclass(frozen=True)
class Line:
    """One metric over the steps."""

    name: str
    x: list[float]
    y: list[float]
    dashed: bool = False  # a limit, not a measurement
    colour: int | None = None  # of the palette; None: by its place among the measured lines, a limit is gray
    faint: bool = False  # one of many that are there for their mean


@dataclass(frozen=True)
class Chart:
    """Lines that are read together."""

    title: str
    lines: list[Line]
    along: str = "step"  # what x is
    up: str = ""  # what y is, where the title does not say it
    unit: bool = False  # both go from 0 to 1

    def sentence(self) -> str:
        """The chart in words, for who does not see it."""
        parts = []
        for line in self.lines:
            first, last = line.y[0], line.y[-1]
            if line.faint:
                continue
            if line.dashed or min(line.y) == max(line.y):
                parts.append(f"{line.name} {last:.4g}")
            else:
                least, most = min(line.y), max(line.y)
                parts.append(f"{line.name} from {first:.4g} to {last:.4g}, between {least:.4g} and {most:.4g}")
        return "; ".join(parts)

    def data(self) -> dict[str, Any]:
        """For the script of the page."""
        return {
            "kind": "lines",
            "lines": [
                {"name": line.name, "x": line.x, "y": line.y, "colour": colour, "dashed": line.dashed}
                for line, colour in zip(self.lines, self.colours(), strict=True)
                if not line.faint
            ],
        }

    def colours(self) -> list[int | None]:
        """Of each line the number in the palette: its own, or its place among the measured; None for a limit."""
        found: list[int | None] = []
        for line in self.lines:
            measured = sum(colour is not None for colour in found)
            found.append(measured if line.colour is None and not line.dashed else line.colour)
        return found


# title, and for each line: key in metrics.jsonl, name, whether it is a limit
_CHARTS = (
    ("Loss", (("loss", "loss", False), ("ceiling", "log N: nothing learned", True))),
    ("Perplexity of masked words", (("word_perplexity", "perplexity", False),)),
    ("k-NN during training", (("knn", "k-NN accuracy", False),)),
    ("Loss of held-out samples", (("validation_loss", "InfoNCE at temperature 0.1", False),)),
    ("Effective rank", (("effective_rank", "effective rank", False),)),
    (
        "RankMe of held-out samples",
        (("validation_rank", "RankMe", False), ("validation_rank_limit", "the most it can be", True)),
    ),
    ("Alignment and uniformity", (("alignment", "alignment", False), ("uniformity", "uniformity", False))),
    ("Mutual information, at least", (("bound", "bound log N - loss", False), ("ceiling", "ceiling log N", True))),
    ("Contrastive accuracy", (("accuracy", "accuracy", False),)),
    ("Deviation of a dimension", (("deviation", "deviation", False),)),
    ("Temperature", (("temperature", "temperature", False),)),
    ("Learning rate", (("lr", "learning rate", False),)),
    ("Gradient norm", (("gradient_norm", "gradient norm", False),)),
    ("Speed", (("samples_per_second", "samples per second", False),)),
)


def overlaid(runs: dict[str, list[dict[str, Any]]]) -> list[Chart]:
    """A chart for each metric with a line for each run that has it, in the run's colour; limits are dashed.

    Args:
        runs: the metrics of each by its name, in the order of their colours.
    """
    charts = []
    for title, wanted in _CHARTS:
        limits = [(key, name) for key, name, dashed in wanted if dashed]
        measured = [(key, name) for key, name, dashed in wanted if not dashed]
        for key, name in measured:
            lines = []
            for number, (run, metrics) in enumerate(runs.items()):
                if (line := _line(metrics, key, run, False)) is None:
                    continue
                lines.append(replace(line, colour=number))
                for limit, words in limits:
                    if (bound := _line(metrics, limit, f"{run}: {words}", True)) is not None:
                        lines.append(replace(bound, colour=number))
            if lines:
                charts.append(Chart(title if len(measured) == 1 else f"{title}: {name}", lines))
    return charts


def curves(metrics: list[dict[str, Any]]) -> list[Chart]:
    """The charts for which there is something measured; a temperature that stays is a number (`fixed_temperature`)."""
    charts = []
    fixed = fixed_temperature(metrics) is not None
    for title, wanted in _CHARTS:
        if fixed and title == "Temperature":
            continue
        lines = [line for key, name, dashed in wanted if (line := _line(metrics, key, name, dashed))]
        if any(not line.dashed for line in lines):
            charts.append(Chart(title, lines))
    return charts + _by_horizon(metrics)


def fixed_temperature(metrics: list[dict[str, Any]]) -> float | None:
    """The temperature of a run that does not learn it; None where it moves, or is not known."""
    line = _line(metrics, "temperature", "", False)
    return line.y[0] if line is not None and len(set(line.y)) == 1 else None


def _by_horizon(metrics: list[dict[str, Any]]) -> list[Chart]:
    """How far ahead a method that predicts sees, at the last look."""
    last = next((line for line in reversed(metrics) if isinstance(line.get("horizons"), list)), None)
    if last is None:
        return []

    def line(key: str, name: str, dashed: bool = False) -> list[Line]:
        values = last.get(key)
        fits = isinstance(values, list) and len(values) == len(last["horizons"]) > 0
        if not fits or not all(isinstance(value, int | float) for value in values + last["horizons"]):
            return []
        return [Line(name, [float(x) for x in last["horizons"]], [float(f"{y:.6g}") for y in values], dashed)]

    accuracy = line("horizon_accuracy", "accuracy")
    bound = line("horizon_bound", "bound log N - loss") + line("horizon_ceiling", "ceiling log N", dashed=True)
    titles = {"Contrastive accuracy of each horizon": accuracy, "Mutual information of each horizon, at least": bound}
    return [Chart(title, lines, "frames ahead") for title, lines in titles.items() if lines]


def _line(metrics: list[dict[str, Any]], key: str, name: str, dashed: bool) -> Line | None:
    points = [
        (float(line["step"]), float(value))
        for line in metrics
        if isinstance(value := _value(line, key), int | float) and math.isfinite(value)
    ]
    if not points:
        return None
    stride = math.ceil(len(points) / _POINTS)
    kept = points[:-1:stride] + points[-1:]
    return Line(name, [x for x, _ in kept], [float(f"{y:.6g}") for _, y in kept], dashed)


def _value(line: dict[str, Any], key: str) -> Any:
    """What was logged; of a learned scale, which multiplies, the temperature is what would divide instead."""
    scale = line.get("logit_scale")
    if key == "temperature" and key not in line and isinstance(scale, int | float) and scale > 0:
        return 1 / scale
    return line.get(key)
