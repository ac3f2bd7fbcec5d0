"""Findings as a figure: measurements as points and lines, theory dashed, limits dotted."""

import math
from pathlib import Path
from textwrap import fill
from typing import Any

from nearfar.lab.findings import Findings, Panel

_WIDTH, _HEIGHT = 7.2, 3.3  # of the figure and of a row in inches; readable on a phone with 11-point text
_APART = 0.07  # least distance of two tick labels, as a fraction of the axis


def draw(findings: Findings, path: Path) -> Path:
    """Write a PNG with all panels, two per row; if their number is odd, the first has its own row."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    alone = len(findings.panels) % 2
    rows = (len(findings.panels) + alone) // 2
    with rc_context({"font.size": 11, "axes.titlesize": 12, "legend.fontsize": 10, "xtick.labelsize": 10}):
        figure = Figure(figsize=(_WIDTH, _HEIGHT * rows), layout="constrained")
        grid = figure.add_gridspec(rows, 2)
        for number, panel in enumerate(findings.panels):
            row, column = divmod(number + alone if number else 0, 2)
            wide = bool(alone) and number == 0
            _panel(figure.add_subplot(grid[row, slice(None) if wide else column]), panel, wide=wide)
        figure.savefig(path, format="png", dpi=150)
    return path


def _panel(axis: Any, panel: Panel, *, wide: bool) -> None:
    colors: dict[str, str] = {}  # a measurement and its prediction have the same name, and so the same color
    named: set[str] = set()
    predicted = {line.name for line in panel.lines if line.kind == "predicted"}
    for line in panel.lines:
        color = "0.4" if line.kind == "limit" else colors.setdefault(line.name, f"C{len(colors)}")
        label = line.name if line.name not in named else None
        named.add(line.name)
        points = "o" if line.name in predicted or isinstance(line.x[0], str) else "o-"
        style = {"measured": points, "predicted": "--", "limit": ":", "cloud": "."}[line.kind]
        axis.plot(line.x, line.y, style, color=color, label=label, markersize=4)
    if "x" in panel.log:
        axis.set_xscale("log")
        measured = sorted({float(x) for line in panel.lines if line.kind == "measured" for x in line.x})
        axis.set_xticks(measured, _tick_labels(measured))
        axis.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    if "y" in panel.log:
        axis.set_yscale("log")
        _plain_numbers(axis.yaxis)
    is_cloud = any(line.kind == "cloud" for line in panel.lines)
    if is_cloud:
        axis.set_aspect("equal")
        axis.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    axis.set(xlabel=panel.x, ylabel=fill(panel.y, 26))
    if is_cloud or len(named) == 1:
        axis.set_title(panel.title)
    else:  # above the panel, where it covers nothing
        columns = len(named) if wide else 2 if max(map(len, named)) < 21 else 1
        legend = axis.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns, title=panel.title, frameon=False
        )
        legend.get_title().set_fontsize(12)


def _tick_labels(values: list[float]) -> list[str]:
    """Tick labels of a logarithmic axis; a tick too close to the previous one has none.

    >>> _tick_labels([0.02, 0.05, 0.07, 0.1, 10.0])
    ['0.02', '0.05', '', '0.1', '10']
    """
    apart = _APART * math.log(values[-1] / values[0])
    written: list[str] = []
    last = -math.inf
    for value in values:
        near = math.log(value) - last < apart
        written.append("" if near else f"{value:g}")
        last = last if near else math.log(value)
    return written


def _plain_numbers(axis: Any) -> None:
    """0.2 in place of 2 × 10⁻¹ on a short axis."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 5, 6, 8) if high < 10 * low else (1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
