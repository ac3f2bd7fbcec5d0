"""Charts of an evaluation: ROC, precision-recall, calibration and confusion, for the page and for PNG files."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.dataset import counted
from nearfar.metric_text import percent
from nearfar.report.curves import Curve, LineChart
from nearfar.report.markup import Charts, details
from nearfar.report.run import ProtocolCurves
from nearfar.report.svg import heat_map, heat_map_box, line_figure

Arrays = Mapping[str, NDArray[Any]]  # behind a number, as protocols name them
_MAX_CLASSES = 12  # that get a curve each
_POINTS = 101  # of a curve
_LOOK_FOR = {
    "ROC": "The nearer to the upper left corner, the better; the dashed line is chance.",
    "Precision and recall": "The higher the line stays, the better.",
}
_DIAGONAL = ([0.0, 1.0], [0.0, 1.0])


def roc_chart(encoders: Mapping[str, Arrays]) -> LineChart | None:
    """One class against the rest: the mean over classes for each encoder, and each class of the first."""
    curves = _rate_curves(encoders, "roc")
    chance = Curve("chance", *_DIAGONAL, dashed=True)
    return LineChart("ROC", [*curves, chance], "false positive rate", "true positive rate", True) if curves else None


def precision_recall_chart(encoders: Mapping[str, Arrays]) -> LineChart | None:
    """As `roc_chart`."""
    curves = _rate_curves(encoders, "pr")
    return LineChart("Precision and recall", curves, "recall", "precision", True) if curves else None


def calibration_chart(encoders: Mapping[str, Arrays]) -> LineChart | None:
    """Accuracy of predictions by their confidence."""
    curves = []
    for color, (encoder, arrays) in enumerate(encoders.items()):
        bins = [arrays[f"bin_{name}"] for name in ("count", "confidence", "accuracy") if f"bin_{name}" in arrays]
        if len(bins) < 3 or len({values.shape for values in bins}) != 1:
            continue
        count, confidence, accuracy = bins
        known = (count > 0) & np.isfinite(confidence) & np.isfinite(accuracy)
        if known.any():
            curves.append(Curve(encoder, _rounded(confidence[known]), _rounded(accuracy[known]), color=color))
    ideal = Curve("confidence = accuracy", *_DIAGONAL, dashed=True)
    return LineChart("Calibration", [*curves, ideal], "confidence", "accuracy", True) if curves else None


def confusion_matrix(arrays: Arrays) -> tuple[NDArray[np.float64], list[str]] | None:
    """(C, C) counts, true class by predicted class, and C names."""
    counts, names = arrays.get("confusion"), arrays.get("classes", np.array([]))
    if counts is None or not len(counts):
        return None
    named = map(str, names) if len(names) == len(counts) else map(str, range(len(counts)))
    return counts.astype(np.float64), list(named)


def row_shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Counts as shares of the true class."""
    shares: NDArray[np.float64] = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


def has_charts(figure: ProtocolCurves) -> bool:
    """Whether its curves are drawn as charts, so that no picture of them is needed."""
    return any(name in figure.arrays for name in ("roc", "pr", "confusion", "bin_count"))


def score_section(figures: Sequence[ProtocolCurves], charts: Charts) -> str:
    """Charts for each protocol and data set, first of the trained encoder; all but the first protocol are folded."""
    content = ""
    for measure in dict.fromkeys(_measure(figure) for figure in figures):
        same = [figure for figure in figures if _measure(figure) == measure and figure.arrays]
        if not same:
            continue
        encoders = {figure.row.encoder: figure.arrays for figure in same}
        own = "trained" if "trained" in encoders else same[0].row.encoder
        title = f"{measure[0]}, {measure[1]} {measure[2]}"
        drawn = _confusion(own, encoders[own], charts) + _lines(encoders, charts)
        others = "".join(_confusion(name, arrays, charts) for name, arrays in encoders.items() if name != own)
        if not drawn:
            continue
        others = details(f"Confusion of the other encoders: {title}", _grid(others))
        if content:
            content += details(f"Charts: {title}", _grid(drawn) + others)
        else:
            content = f"<h3>{escape(title)}</h3>{_grid(drawn)}{others}"
    return content


def _lines(encoders: Mapping[str, Arrays], charts: Charts) -> str:
    content = ""
    for chart in (roc_chart(encoders), precision_recall_chart(encoders)):
        if chart is not None:
            means = [curve for curve in chart.curves if not (curve.dashed or curve.faint)]
            areas = ", ".join(f"{curve.name} {float(np.trapezoid(curve.y, curve.x)):.3f}" for curve in means)
            content += line_figure(
                chart, f"{_LOOK_FOR[chart.title]} One class against the rest, mean over classes. Area: {areas}.", charts
            )
    if (chart := calibration_chart(encoders)) is not None:
        content += line_figure(
            chart, "On the dashed line the confidence is right; below it, the classifier is too sure.", charts
        )
    return content


def _rate_curves(encoders: Mapping[str, Arrays], key: str) -> list[Curve]:
    own = next((name for name in ("trained", *encoders) if name in encoders), "")
    means, classes = [], []
    for color, (encoder, arrays) in enumerate(encoders.items()):
        values = arrays.get(key, np.array([]))
        if not len(values):
            continue
        means.append(_curve(encoder, arrays["grid"], values.mean(0), color))
        if encoder == own and 1 < len(values) <= _MAX_CLASSES:
            names, present = arrays.get("classes", np.array([])), arrays.get("present", np.arange(len(values)))
            for number, each in zip(present.tolist(), values, strict=False):
                name = str(names[number]) if 0 <= number < len(names) else f"class {number}"
                classes.append(_curve(name, arrays["grid"], each, color, faint=True))
    return classes + means


def _curve(name: str, grid: NDArray[Any], values: NDArray[Any], color: int, *, faint: bool = False) -> Curve:
    places = np.linspace(0, len(grid) - 1, min(_POINTS, len(grid))).round().astype(int)
    return Curve(name, _rounded(grid[places]), _rounded(np.nan_to_num(values[places])), color=color, faint=faint)


def _confusion(encoder: str, arrays: Arrays, charts: Charts) -> str:
    if (found := confusion_matrix(arrays)) is None:
        return ""
    counts, names = found
    shares = row_shares(counts)
    data = {"kind": "heat", "z": np.round(shares, 3).tolist(), "names": names, "box": heat_map_box(names)}
    drawing = heat_map(shares, (0.0, 1.0), (0.0, 1.0), "predicted", "true", names)
    wrong = counts * (1 - np.eye(len(counts)))
    order = [divmod(int(place), len(counts)) for place in np.argsort(-wrong, axis=None, kind="stable")[:3]]
    most = [f"{names[i]} taken for {names[j]} ({counted(int(wrong[i, j]), 'time')})" for i, j in order if wrong[i, j]]
    right = percent(float(np.trace(counts) / max(counts.sum(), 1)))
    caption = f"A strong diagonal is good; each row sums to one. {right} are right; "
    caption += f"most frequent errors: {', '.join(most)}." if most else "there are no errors."
    return charts.figure(f"Confusion: {encoder}", drawing, data, caption)


def _measure(figure: ProtocolCurves) -> tuple[str, str, str]:
    return figure.row.protocol, figure.row.data, figure.row.split


def _grid(figures: str) -> str:
    return f'<div class="charts">{figures}</div>' if figures else ""


def _rounded(values: NDArray[Any]) -> list[float]:
    return [round(float(value), 4) for value in values]
