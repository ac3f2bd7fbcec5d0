"""What is behind the numbers of an evaluation, as charts: ROC and precision-recall of all encoders, who is taken for
whom, and how far confidence can be believed.
"""

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.dataset import counted
from nearfar.evaluation.results import Row, percent
from nearfar.report.curves import Chart, Line
from nearfar.report.draw import heat, heat_box, line_figure
from nearfar.report.markup import Charts, details
from nearfar.report.run import Figure

_MANY = 12  # classes of which no curve of their own is drawn
_PLACES = 101  # points of a curve


def score_charts(figures: list[Figure], charts: Charts) -> str:
    """Charts for each protocol and data set, the trained encoder's confusion first; those of the others unfold."""
    content = ""
    for measure in dict.fromkeys(_measure(figure.row) for figure in figures):
        several = [figure for figure in figures if _measure(figure.row) == measure and figure.curves]
        if not several:
            continue
        own = next((figure for figure in several if figure.row.encoder == "trained"), several[0])
        title = f"{measure[0]}, {measure[1]} {measure[2]}"
        drawn = "".join(
            [
                _confusion(own, charts),
                *(_rates(several, own, kind, charts) for kind in ("roc", "pr")),
                _calibration(several, charts),
            ]
        )
        others = "".join(_confusion(figure, charts) for figure in several if figure is not own)
        if not drawn:
            continue
        others = details(f"Confusion of the other encoders: {title}", _grid(others))
        if content:  # one protocol is enough to be seen at once
            content += details(f"Charts: {title}", _grid(drawn) + others)
        else:
            content = f"<h3>{escape(title)}</h3>{_grid(drawn)}{others}"
    return content


def _grid(figures: str) -> str:
    return f'<div class="charts">{figures}</div>' if figures else ""


def has_charts(figure: Figure) -> bool:
    """Whether its curves are drawn here, so that no picture of them is needed."""
    return any(name in figure.curves for name in ("roc", "pr", "confusion", "bin_count"))


def _measure(row: Row) -> tuple[str, str, str]:
    return row.protocol, row.data, row.split


def _confusion(figure: Figure, charts: Charts) -> str:
    counts = figure.curves.get("confusion")
    if counts is None or not len(counts):
        return ""
    counts = counts.astype(np.float64)
    names = figure.classes.get("classes", figure.curves.get("classes", np.array([])))
    words = [str(name) for name in names] if len(names) == len(counts) else [str(i) for i in range(len(counts))]
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    data = {"kind": "heat", "z": np.round(share, 3).tolist(), "names": words, "box": heat_box(words)}
    drawing = heat(share, (0.0, 1.0), (0.0, 1.0), "predicted", "true", words)
    wrong = counts * (1 - np.eye(len(counts)))
    order = [divmod(int(place), len(counts)) for place in np.argsort(-wrong, axis=None, kind="stable")[:3]]
    taken = [
        f"{words[i]} taken for {words[j]} ({counted(int(wrong[i, j]), 'time')})" for i, j in order if wrong[i, j] > 0
    ]
    caption = f"Each row sums to one. {percent(float(np.trace(counts) / max(counts.sum(), 1)))} are right; "
    caption += f"most often: {', '.join(taken)}." if taken else "none is taken for another."
    return charts.figure(f"Confusion: {figure.row.encoder}", drawing, data, caption)


def _rates(several: list[Figure], own: Figure, name: str, charts: Charts) -> str:
    lines = []
    each = own.curves.get(name)
    if each is not None and 1 < len(each) <= _MANY:
        names, present = own.classes.get("classes", np.array([])), own.curves.get("present", np.arange(len(each)))
        for number, values in zip(present.tolist(), each, strict=False):
            words = str(names[number]) if 0 <= number < len(names) else f"class {number}"
            lines.append(_line(own, values, words, 0, faint=True))
    for number, figure in enumerate(several):
        if name in figure.curves and len(figure.curves[name]):
            lines.append(_line(figure, figure.curves[name].mean(0), figure.row.encoder, number))
    if not lines:
        return ""
    if name == "roc":
        lines.append(Line("chance", [0.0, 1.0], [0.0, 1.0], dashed=True))
        chart = Chart("ROC", lines, "false positive rate", "true positive rate", unit=True)
    else:
        chart = Chart("Precision and recall", lines, "recall", "precision", unit=True)
    areas = ", ".join(
        f"{line.name} {float(np.trapezoid(line.y, line.x)):.3f}" for line in lines if not (line.dashed or line.faint)
    )
    caption = f"One class against the rest, mean of the classes. Area: {areas}."
    return line_figure(chart, caption, charts)


def _line(figure: Figure, values: NDArray[Any], name: str, colour: int, *, faint: bool = False) -> Line:
    grid = figure.curves["grid"]
    places = np.linspace(0, len(grid) - 1, min(_PLACES, len(grid))).round().astype(int)
    x, y = grid[places], np.nan_to_num(values[places])
    return Line(name, [round(float(v), 4) for v in x], [round(float(v), 4) for v in y], colour=colour, faint=faint)


def _calibration(several: list[Figure], charts: Charts) -> str:
    lines = []
    for number, figure in enumerate(several):
        arrays = [figure.curves.get(f"bin_{name}") for name in ("count", "confidence", "accuracy")]
        if any(x is None for x in arrays) or len({x.shape for x in arrays if x is not None}) != 1:
            continue
        count, confidence, accuracy = (x for x in arrays if x is not None)
        seen = (count > 0) & np.isfinite(confidence) & np.isfinite(accuracy)
        x, y = ([round(float(v), 4) for v in values[seen]] for values in (confidence, accuracy))
        if x:
            lines.append(Line(figure.row.encoder, x, y, colour=number))
    if not lines:
        return ""
    lines.append(Line("as sure as right", [0.0, 1.0], [0.0, 1.0], dashed=True))
    chart = Chart("Calibration", lines, "confidence", "accuracy", unit=True)
    return line_figure(chart, "How often a prediction is right, by how sure it was.", charts)
