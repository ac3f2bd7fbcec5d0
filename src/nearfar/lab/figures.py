"""Findings as a picture: measured points and lines, theory dashed, limits dotted."""

from pathlib import Path
from typing import Any

from nearfar.lab.findings import Findings, Line, Panel

_COLUMNS = 3


def draw(findings: Findings, path: Path) -> Path:
    """Write a PNG with all panels."""
    from matplotlib.figure import Figure

    columns = 2 if len(findings.panels) == 4 else min(_COLUMNS, len(findings.panels))
    rows = -(-len(findings.panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, panel in zip(axes, findings.panels, strict=False):
        _panel(axis, panel)
    for axis in axes[len(findings.panels) :]:
        axis.set_axis_off()
    figure.savefig(path, format="png", dpi=100)
    return path


def _panel(axis: Any, panel: Panel) -> None:
    colours: dict[str, str] = {}  # a measurement and its prediction share a name, so a colour
    named: set[str] = set()
    predicted = {line.name for line in panel.lines if line.kind == "predicted"}
    for line in panel.lines:
        colour = "0.4" if line.kind == "limit" else colours.setdefault(line.name, f"C{len(colours)}")
        label = line.name if line.name not in named else None
        named.add(line.name)
        axis.plot(line.x, line.y, _style(line, line.name in predicted), color=colour, label=label, markersize=4)
    if "x" in panel.log:
        axis.set_xscale("log")
        measured = sorted({x for line in panel.lines if line.kind == "measured" for x in line.x})
        axis.set_xticks(measured, [f"{x:g}" for x in measured], fontsize=8)
        axis.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    if "y" in panel.log:
        axis.set_yscale("log")
    if any(line.kind == "cloud" for line in panel.lines):
        axis.set_aspect("equal")
    else:
        axis.legend(fontsize=7)
    axis.set(xlabel=panel.x, ylabel=panel.y)
    axis.set_title(panel.title, fontsize=10)


def _style(line: Line, has_prediction: bool) -> str:
    measured = "o" if has_prediction or isinstance(line.x[0], str) else "o-"
    return {"measured": measured, "predicted": "--", "limit": ":", "cloud": "."}[line.kind]
