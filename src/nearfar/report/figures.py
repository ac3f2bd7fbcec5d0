"""PNG files of what an evaluation found: one for each encoder and protocol that has curves."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.evaluation.results import Results
from nearfar.messages import shorten
from nearfar.report import score_charts
from nearfar.report.curves import Curve, LineChart
from nearfar.report.run import FIGURES as FIGURES
from nearfar.report.score_charts import Arrays

_MAX_NAMED = 40  # classes whose names fit beside the confusion matrix


def draw_curves(results: Results, folder: Path | str) -> list[Path]:
    """Write `DATA_SPLIT/PROTOCOL-ENCODER.png` beside the arrays of `Results.save_curves`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    paths = []
    for (encoder, protocol), arrays in results.curves.items():
        panels = _panels(encoder, arrays)
        if not panels:
            continue
        size = 4.2 * len(panels), 4
        figure, axes = plt.subplots(1, len(panels), figsize=size, constrained_layout=True, squeeze=False)
        for draw, axis in zip(panels, axes[0], strict=True):
            draw(axis)
        where = next((f", {row.data} {row.split}" for row in results.rows if row.protocol == protocol), "")
        figure.suptitle(_plain(f"{encoder}: {protocol}{where}"))
        path = Path(folder) / f"{results.curve_name(encoder, protocol)}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=250 if "pictures" in arrays else 100)
        plt.close(figure)
        paths.append(path)
    return paths


def _panels(encoder: str, arrays: Arrays) -> list[Callable[[Any], None]]:
    """The functions that draw these arrays, each on an axis."""
    kinds = (score_charts.roc_chart, score_charts.precision_recall_chart, score_charts.calibration_chart)
    charts = [chart for kind in kinds if (chart := kind({encoder: arrays})) is not None]
    if "false_rate" in arrays:
        pairs = Curve(encoder, arrays["false_rate"].tolist(), arrays["true_rate"].tolist())
        chance = Curve("chance", [0.0, 1.0], [0.0, 1.0], dashed=True)
        charts.append(LineChart("Same class or not", [pairs, chance], "false accept rate", "true accept rate", True))
    panels: list[Callable[[Any], None]] = [partial(_lines, chart=chart) for chart in charts]
    others = {"confusion": _confusion, "spectrum": _spectrum, "occurrence": _hubness, "pictures": _detections}
    return panels + [partial(draw, arrays=arrays) for key, draw in others.items() if key in arrays]


def _lines(axis: Any, chart: LineChart) -> None:
    for curve, color in zip(chart.curves, chart.colors(), strict=True):
        ink = "0.75" if curve.faint else "0.5" if color is None else f"C{color}"
        label = None if curve.faint else _plain(curve.name)
        width = 0.8 if curve.faint else 1.0 if curve.dashed else 2.0
        axis.plot(curve.x, curve.y, ":" if curve.dashed else "-", color=ink, linewidth=width, label=label)
    axis.set(xlabel=chart.x_title, ylabel=chart.y_title, title=chart.title)
    if chart.unit:
        axis.set(xlim=(0, 1), ylim=(0, 1.01))
    axis.legend()


def _confusion(axis: Any, arrays: Arrays) -> None:
    if (found := score_charts.confusion_matrix(arrays)) is None:
        return
    counts, names = found
    axis.imshow(score_charts.row_shares(counts), vmin=0, vmax=1, cmap="viridis")
    axis.set(xlabel="predicted class", ylabel="true class", title="Confusion, share of the true class")
    if len(names) <= _MAX_NAMED:
        short, size = [_plain(shorten(name, 14)) for name in names], 8 if len(names) <= 12 else 5
        axis.set_xticks(range(len(short)), short, rotation=90, fontsize=size)
        axis.set_yticks(range(len(short)), short, fontsize=size)


def _spectrum(axis: Any, arrays: Arrays) -> None:
    spectrum = arrays["spectrum"][arrays["spectrum"] > 0]
    axis.plot(np.arange(1, len(spectrum) + 1), spectrum)
    axis.set(xscale="log", yscale="log", xlabel="direction", ylabel="variance", title="Spectrum of the covariance")


def _hubness(axis: Any, arrays: Arrays) -> None:
    axis.hist(arrays["occurrence"], bins=np.arange(arrays["occurrence"].max() + 2) - 0.5)
    axis.set(xlabel="times among the 10 nearest", ylabel="images", yscale="log", title="Hubness")


def _detections(axis: Any, arrays: Arrays) -> None:
    """Images side by side: true boxes dashed, detected ones with class and score."""
    from matplotlib.patches import Rectangle

    images, names = arrays["pictures"], arrays["classes"]
    n, height, width = images.shape[:3]
    columns = min(3, n)
    sheet = np.full((-(-n // columns) * height, columns * width, 3), 255, np.uint8)
    for i, (image, (h, w)) in enumerate(zip(images, arrays["picture_shapes"], strict=True)):
        x, y = i % columns * width, i // columns * height
        sheet[y : y + h, x : x + w] = image[:h, :w]
    axis.imshow(sheet)
    for boxes, color, line in ((arrays["true_boxes"], "white", "--"), (arrays["found_boxes"], "orange", "-")):
        for place, kind, x1, y1, x2, y2, *score in boxes:
            x, y = x1 + place % columns * width, y1 + place // columns * height
            style: dict[str, Any] = {"fill": False, "edgecolor": color, "linestyle": line, "linewidth": 1}
            axis.add_patch(Rectangle((x - 0.5, y - 0.5), x2 - x1, y2 - y1, **style))
            text = f"{names[int(kind)]} {score[0]:.2f}" if score else ""
            axis.text(x, y - 2, _plain(text), color=color, fontsize=5, clip_on=True)
    axis.set(title="Dashed: true boxes; with a score: detected", xticks=[], yticks=[])


def _plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")
