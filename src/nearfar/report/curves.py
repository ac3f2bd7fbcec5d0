"""Line charts as data, each with a sentence that says the same, and those of a run's training metrics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

_MAX_POINTS = 500  # of a curve: more than a chart can show
Metrics = Sequence[Mapping[str, Any]]  # lines of metrics.jsonl


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    x: list[float]
    y: list[float]
    dashed: bool = False  # a limit, not a measurement
    color: int | None = None  # in the palette; None: by its place among the measured curves, gray for a limit
    faint: bool = False  # one of many that are shown behind their mean


@dataclass(frozen=True)
class LineChart:
    """Curves on the same axes."""

    title: str
    curves: list[Curve]
    x_title: str = "step"
    y_title: str = ""  # where the chart's title does not say it
    unit: bool = False  # both axes go from 0 to 1

    def sentence(self) -> str:
        """The chart in words."""
        parts = []
        for curve in self.curves:
            low, high = min(curve.y), max(curve.y)
            if curve.faint:
                continue
            if curve.dashed or low == high:
                parts.append(f"{curve.name} {curve.y[-1]:.4g}")
            else:
                course = f"from {curve.y[0]:.4g} to {curve.y[-1]:.4g}, between {low:.4g} and {high:.4g}"
                parts.append(f"{curve.name} {course}")
        return "; ".join(parts)

    def data(self) -> dict[str, Any]:
        """For the page's script."""
        shown = [(curve, color) for curve, color in zip(self.curves, self.colors(), strict=True) if not curve.faint]
        lines = [{"name": c.name, "x": c.x, "y": c.y, "colour": color, "dashed": c.dashed} for c, color in shown]
        return {"kind": "lines", "lines": lines}

    def colors(self) -> list[int | None]:
        """The palette number of each curve; None for a limit without one."""
        found: list[int | None] = []
        for curve in self.curves:
            measured = sum(color is not None for color in found)
            found.append(measured if curve.color is None and not curve.dashed else curve.color)
        return found


_CHARTS = {  # by title: the name of each curve by its key in metrics.jsonl
    "Loss": {"loss": "loss", "ceiling": "log N: nothing learned"},
    "Perplexity of masked words": {"word_perplexity": "perplexity"},
    "k-NN during training": {"knn": "k-NN accuracy"},
    "Scores of held-out pairs": {"spearman": "Spearman's correlation with the cosines"},
    "Loss of held-out samples": {"validation_loss": "InfoNCE at temperature 0.1"},
    "Effective rank": {"effective_rank": "effective rank"},
    "RankMe of held-out samples": {"validation_rank": "RankMe", "validation_rank_limit": "largest possible"},
    "Alignment and uniformity": {"alignment": "alignment", "uniformity": "uniformity"},
    "Mutual information, lower bound": {"bound": "bound log N - loss", "ceiling": "ceiling log N"},
    "Contrastive accuracy": {"accuracy": "accuracy"},
    "Standard deviation of a dimension": {"deviation": "deviation"},
    "Temperature": {"temperature": "temperature"},
    "Learning rate": {"lr": "learning rate"},
    "Gradient norm": {"gradient_norm": "gradient norm"},
    "Speed": {"samples_per_second": "samples per second"},
}
_LIMITS = ("ceiling", "validation_rank_limit")


def training_curves(metrics: Metrics) -> list[LineChart]:
    """A chart for each group of metrics that was logged; a constant temperature has none (`fixed_temperature`)."""
    charts = []
    for title, names in _CHARTS.items():
        if title == "Temperature" and fixed_temperature(metrics) is not None:
            continue
        curves = [curve for key, name in names.items() if (curve := _curve(metrics, key, name))]
        if not all(curve.dashed for curve in curves):
            charts.append(LineChart(title, curves))
    return charts + _by_horizon(metrics)


def overlaid_curves(runs: Mapping[str, Metrics]) -> list[LineChart]:
    """A chart for each metric with a curve for each run that logged it, in the run's color; limits are dashed.

    Args:
        runs: metrics by the name of the run, in the order of their colors.
    """
    charts = []
    for title, names in _CHARTS.items():
        limits = {key: name for key, name in names.items() if key in _LIMITS}
        measured = {key: name for key, name in names.items() if key not in _LIMITS}
        for key, name in measured.items():
            curves = []
            for color, (run, metrics) in enumerate(runs.items()):
                if own := _curve(metrics, key, run):
                    bounds = (_curve(metrics, limit, f"{run}: {text}") for limit, text in limits.items())
                    curves += [replace(curve, color=color) for curve in (own, *bounds) if curve]
            if curves:
                charts.append(LineChart(title if len(measured) == 1 else f"{title}: {name}", curves))
    return charts


def fixed_temperature(metrics: Metrics) -> float | None:
    """The temperature of a run that does not learn it; None where it changes or is not known."""
    curve = _curve(metrics, "temperature", "")
    return curve.y[0] if curve is not None and len(set(curve.y)) == 1 else None


def _by_horizon(metrics: Metrics) -> list[LineChart]:
    """How well a method that predicts the future does at each distance, at the last measurement."""
    last = next((line for line in reversed(metrics) if isinstance(line.get("horizons"), list)), None)
    if last is None:
        return []

    def curve(key: str, name: str, dashed: bool = False) -> list[Curve]:
        values = last.get(key)
        if not isinstance(values, list) or len(values) != len(last["horizons"]) or not values:
            return []
        if not all(isinstance(value, int | float) for value in values + last["horizons"]):
            return []
        return [Curve(name, [float(x) for x in last["horizons"]], [float(f"{y:.6g}") for y in values], dashed)]

    accuracy = curve("horizon_accuracy", "accuracy")
    bound = curve("horizon_bound", "bound log N - loss") + curve("horizon_ceiling", "ceiling log N", dashed=True)
    titles = {"Contrastive accuracy by horizon": accuracy, "Mutual information by horizon, lower bound": bound}
    return [LineChart(title, curves, "frames ahead") for title, curves in titles.items() if curves]


def _curve(metrics: Metrics, key: str, name: str) -> Curve | None:
    points = [
        (float(line["step"]), float(value))
        for line in metrics
        if isinstance(value := line.get(key), int | float) and math.isfinite(value)
    ]
    if not points:
        return None
    stride = math.ceil(len(points) / _MAX_POINTS)
    kept = points[:-1:stride] + points[-1:]
    return Curve(name, [x for x, _ in kept], [float(f"{y:.6g}") for _, y in kept], key in _LIMITS)
