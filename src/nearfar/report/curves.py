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
    share: bool = False  # the y axis goes from 0 to 1
    zero: bool = False  # the y axis begins at 0
    look_for: str = ""  # what to see, in a sentence
    group: str = "details"  # "learning", "health" or "details"

    def sentence(self) -> str:
        """What to look for, then the chart in words."""
        parts = []
        for curve in self.curves:
            low, high = min(curve.y), max(curve.y)
            if curve.faint:
                continue
            if curve.dashed or low == high:
                parts.append(f"{curve.name} {curve.y[-1]:.4g}")
            else:
                parts.append(f"{curve.name} from {curve.y[0]:.3g} to {curve.y[-1]:.3g}")
        course = "; ".join(parts)
        return f"{self.look_for} {course[:1].upper()}{course[1:]}." if self.look_for else course

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


@dataclass(frozen=True)
class _Metric:
    """A chart of the log: the name of each curve by its key in metrics.jsonl, and what to see in it."""

    names: dict[str, str]
    group: str
    look_for: str
    share: bool = False
    zero: bool = False


_CHARTS = {
    "Loss": _Metric(
        {"loss": "loss", "ceiling": "nothing learned"},
        "learning",
        "Should fall below the dashed line and then flatten; still falling at the end: train longer.",
    ),
    "Accuracy of the nearest neighbors": _Metric(
        {"knn": "k-NN accuracy"},
        "learning",
        "Should rise: how often neighbors in the embedding have the right label, which training never sees.",
        share=True,
    ),
    "Agreement with human scores": _Metric(
        {"spearman": "Spearman's correlation with the cosines"},
        "learning",
        "Should rise: whether pairs that people call similar are close.",
    ),
    "Loss of held-out samples": _Metric(
        {"validation_loss": "InfoNCE at temperature 0.1"},
        "learning",
        "Should fall with the loss; rising while the loss falls is overfitting.",
    ),
    "How often the right view is found": _Metric(
        {"accuracy": "accuracy"},
        "learning",
        "Should rise: the other view of a sample is picked out of the whole batch.",
        share=True,
    ),
    "Perplexity of masked words": _Metric(
        {"word_perplexity": "perplexity"}, "learning", "Should fall: hidden words are guessed better."
    ),
    "Directions in use": _Metric(
        {"effective_rank": "effective rank"},
        "health",
        "Should stay well above 1, where all samples have the same embedding (collapse).",
        zero=True,
    ),
    "Directions in use, held-out samples": _Metric(
        {"validation_rank": "RankMe", "validation_rank_limit": "largest possible"},
        "health",
        "Should stay well above 1; the dashed line is the largest possible.",
        zero=True,
    ),
    "Spread of each dimension": _Metric(
        {"deviation": "standard deviation"}, "health", "Should stay away from 0, which is a collapse.", zero=True
    ),
    "Closeness of views, evenness of samples": _Metric(
        {"alignment": "alignment", "uniformity": "uniformity"},
        "health",
        "Alignment should fall: the views of a sample move together. Uniformity should stay far below 0, where all "
        "samples lie in one place.",
    ),
    "Size of the gradient": _Metric(
        {"gradient_norm": "gradient norm"},
        "health",
        "Should have no jumps; if it has many, lower the learning rate.",
        zero=True,
    ),
    "Information shared by two views": _Metric(
        {"bound": "log N - loss", "ceiling": "largest possible, log N"},
        "details",
        "A lower bound of mutual information in nats; near the dashed line only a larger batch can show more.",
    ),
    "Temperature": _Metric(
        {"temperature": "temperature"}, "details", "Learned: lower sharpens the loss on the most similar negatives."
    ),
    "Learning rate": _Metric({"lr": "learning rate"}, "details", "Rises in the warm-up, then follows the schedule."),
    "Speed": _Metric(
        {"samples_per_second": "samples per second"}, "details", "Should be level; dips are waits for data or the disk."
    ),
}
_LIMITS = ("ceiling", "validation_rank_limit")


def training_curves(metrics: Metrics) -> list[LineChart]:
    """A chart for each group of metrics that was logged; a constant temperature has none (`fixed_temperature`)."""
    charts = []
    for title, metric in _CHARTS.items():
        if title == "Temperature" and fixed_temperature(metrics) is not None:
            continue
        curves = [curve for key, name in metric.names.items() if (curve := _curve(metrics, key, name))]
        if not all(curve.dashed for curve in curves):
            charts.append(_line_chart(title, metric, curves))
    return charts + _by_horizon(metrics)


def overlaid_curves(runs: Mapping[str, Metrics]) -> list[LineChart]:
    """A chart for each metric with a curve for each run that logged it, in the run's color; limits are dashed.

    Args:
        runs: metrics by the name of the run, in the order of their colors.
    """
    charts = []
    for title, metric in _CHARTS.items():
        limits = {key: name for key, name in metric.names.items() if key in _LIMITS}
        measured = {key: name for key, name in metric.names.items() if key not in _LIMITS}
        for key, name in measured.items():
            curves = []
            for color, (run, metrics) in enumerate(runs.items()):
                if own := _curve(metrics, key, run):
                    bounds = (_curve(metrics, limit, f"{run}: {text}") for limit, text in limits.items())
                    curves += [replace(curve, color=color) for curve in (own, *bounds) if curve]
            if curves:
                charts.append(_line_chart(title if len(measured) == 1 else f"{title}: {name}", metric, curves))
    return charts


def _line_chart(title: str, metric: _Metric, curves: list[Curve]) -> LineChart:
    found = LineChart(title, curves, look_for=metric.look_for, group=metric.group)
    return replace(found, share=metric.share, zero=metric.zero)


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
    bound = curve("horizon_bound", "log N - loss") + curve("horizon_ceiling", "largest possible, log N", dashed=True)
    look_for = "Falls with the distance: what is further ahead is harder to foresee."
    charts = [
        LineChart(
            "How often the right future is found",
            accuracy,
            "frames ahead",
            share=True,
            look_for=look_for,
            group="learning",
        ),
        LineChart("Information about the future", bound, "frames ahead", look_for=look_for),
    ]
    return [chart for chart in charts if chart.curves]


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
